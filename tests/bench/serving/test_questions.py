"""What is asked: policies agree with the knobs that ask for them, and draws are fair."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from bench.serving.questions import draw, early_exit, full_depth, lengthened
from multi_exit.bundle import Bundle
from multi_exit.errors import ConfigurationError


def test_full_depth_and_a_threshold_are_named_in_the_request(toy_bundle: Bundle) -> None:
    full, early = full_depth(toy_bundle.manifest), early_exit(toy_bundle.manifest, 0.3)
    assert json.loads(full.body("rain")) == {"inputs": "rain", "threshold": 0.0}
    assert json.loads(early.body(["rain"])) == {"inputs": ["rain"], "threshold": 0.3}
    assert set(early.policy.thresholds) == {0.3}
    head, body = early.request("été").split(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head


def test_without_a_threshold_the_request_leaves_the_policy_to_the_server(
    toy_bundle: Bundle,
) -> None:
    manifest = toy_bundle.manifest
    assert manifest.default_point is not None
    early = early_exit(manifest, None)
    assert json.loads(early.body("rain")) == {"inputs": "rain"}
    assert early.policy == manifest.point(manifest.default_point).policy


def test_a_bundle_without_a_default_point_needs_a_threshold(toy_bundle: Bundle) -> None:
    manifest = toy_bundle.manifest.model_copy(update={"default_point": None})
    with pytest.raises(ConfigurationError, match="--threshold"):
        early_exit(manifest, None)


def test_nothing_is_drawn_twice_before_all_had_their_turn() -> None:
    drawn = draw("abcde", 12, np.random.default_rng(0))
    assert len(drawn) == 12
    assert sorted(Counter(drawn).values()) == [2, 2, 2, 3, 3]
    assert sorted(drawn[:5]) == list("abcde")
    with pytest.raises(ValueError, match="nothing"):
        draw([], 1, np.random.default_rng(0))


def test_a_lengthened_text_is_so_many_real_ones() -> None:
    text = lengthened(["one", "two", "three"], 20, np.random.default_rng(0))
    assert len(text.split()) == 20
    assert set(text.split()) == {"one", "two", "three"}
