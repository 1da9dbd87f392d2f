"""What a request resolves to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_exit.bundle import Bundle, BundleManifest
from multi_exit.contracts import ConflictingKnobs, Knobs
from multi_exit.errors import ConfigurationError
from service.errors import ContractRefused, InvalidRequest
from service.policies import Policies, PolicyBounds
from tests.service.conftest import certified_point

NOTHING = Knobs()


def _policies(manifest: BundleManifest, **bounds: Any) -> Policies:
    return Policies(manifest, PolicyBounds(**bounds))


@pytest.fixture
def manifest(tiny_bundle: Bundle) -> BundleManifest:
    """Four points, three of them certified; `careful` is the default."""
    points = (
        certified_point("full-depth", (0.0, 0.0, 0.0), 1.0),
        certified_point("careful", (0.1, 0.2, 0.0), 1.5, consistency=0.01),
        certified_point("quick", (0.3, 0.4, 0.0), 2.0, consistency=0.02, accuracy_drop=0.01),
        certified_point("shown", (0.4, 0.4, 0.0), 2.5),
        certified_point("hasty", (0.6, 0.6, 0.0), 3.0, consistency=0.05),
    )
    return tiny_bundle.manifest.model_copy(
        update={"operating_points": points, "default_point": "careful"}
    )


def test_nothing_asked_is_full_depth_where_neither_operator_nor_bundle_says_otherwise(
    tiny_bundle: Bundle,
) -> None:
    resolved = _policies(tiny_bundle.manifest).resolve(NOTHING)
    assert resolved.document == {"kind": "default", "thresholds": [0.0, 0.0, 0.0]}


def test_the_bundle_s_default_point_is_the_default_and_says_what_it_guarantees(
    manifest: BundleManifest,
) -> None:
    assert _policies(manifest).resolve(NOTHING).document == {
        "kind": "default",
        "name": "careful",
        "thresholds": [0.1, 0.2, 0.0],
        "guarantees": [{"kind": "consistency", "epsilon": 0.01, "delta": 0.05}],
    }


def test_the_operator_s_default_wins_over_the_bundle_s(manifest: BundleManifest) -> None:
    resolved = _policies(manifest, default_threshold=0.1).resolve(NOTHING)
    assert resolved.policy.thresholds == (0.1, 0.1, 0.1)
    assert _policies(manifest, default_point="hasty").default.document["name"] == "hasty"


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"default_point": "slow"}, r"default_point 'slow' is not.*it has full-depth, careful"),
        ({"fastest_point": "slow"}, r"fastest_point 'slow' is not"),
        ({"slide_to_point": "slow"}, r"slide_to_point 'slow' is not"),
        ({"default_threshold": 0.1, "default_point": "quick"}, "not both"),
        ({"default_point": "hasty", "fastest_point": "quick"}, "default policy is faster"),
        ({"slide_to_point": "shown"}, "no certificate"),
        ({"slide_to_point": "hasty", "fastest_point": "quick"}, "faster than fastest_point"),
        ({"slide_to_point": "careful"}, "not faster than the default"),
        ({"slide_to_point": "quick", "default_threshold": 0.1}, "set default_point"),
    ],
)
def test_bounds_that_contradict_bundle_or_each_other_stop_the_start(
    manifest: BundleManifest, bounds: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        _policies(manifest, **bounds)


def test_a_threshold_wins_over_the_default(manifest: BundleManifest) -> None:
    resolved = _policies(manifest).resolve(Knobs(threshold=0.0))
    assert resolved.document == {"kind": "threshold", "thresholds": [0.0, 0.0, 0.0]}


@pytest.mark.parametrize(
    ("knobs", "name"),
    [
        ({"max_disagreement": 0.01}, "careful"),
        ({"max_disagreement": 0.04}, "quick"),
        ({"max_disagreement": 0.5}, "hasty"),
        ({"max_accuracy_drop": 0.01}, "quick"),
        ({"speed": 1.2}, "careful"),
        ({"speed": 2.2}, "shown"),
        ({"speed": 1}, "full-depth"),
    ],
)
def test_a_contract_resolves_to_a_point_and_the_answer_tells_both(
    manifest: BundleManifest, knobs: dict[str, float], name: str
) -> None:
    resolved = _policies(manifest).resolve(Knobs(**knobs))  # type: ignore[arg-type]
    assert resolved.policy == manifest.point(name).policy
    assert resolved.document["kind"] == "operating_point"
    assert resolved.document["name"] == name
    assert resolved.document["asked"] == knobs


def test_a_contract_that_no_point_keeps_names_the_nearest(manifest: BundleManifest) -> None:
    with pytest.raises(ContractRefused) as caught:
        _policies(manifest).resolve(Knobs(max_disagreement=0.001))
    assert caught.value.members == {
        "field": "max_disagreement",
        "received": 0.001,
        "nearest": 0.01,
    }


@given(max_layer=st.integers(1, 100), threshold=st.none() | st.floats(0, 1))
def test_max_layer_caps_whatever_applies_at_the_deepest_exit_it_allows(
    tiny_bundle: Bundle, max_layer: int, threshold: float | None
) -> None:
    policies = _policies(tiny_bundle.manifest, default_point="fast")
    resolved = policies.resolve(Knobs(threshold=threshold, max_layer=max_layer))
    exits = tiny_bundle.manifest.exits
    assert exits[resolved.policy.deepest] == max(layer for layer in exits if layer <= max_layer)
    assert resolved.document["max_layer"] == max_layer


def test_a_cap_that_bites_takes_the_guarantee_away(manifest: BundleManifest) -> None:
    policies = _policies(manifest)
    assert "guarantees" not in policies.resolve(Knobs(max_layer=2)).document
    assert "guarantees" in policies.resolve(Knobs(max_layer=manifest.layers)).document


def test_max_layer_before_the_first_exit_is_refused_with_the_first_exit(
    tiny_bundle: Bundle,
) -> None:
    stages = tuple(
        stage.model_copy(update={"exit_layer": layer, "first_layer": first})
        for stage, layer, first in zip(
            tiny_bundle.manifest.stages, (2, 3, 4), (1, 3, 4), strict=True
        )
    )
    manifest = tiny_bundle.manifest.model_copy(update={"exits": (2, 3, 4), "stages": stages})
    with pytest.raises(InvalidRequest) as caught:
        _policies(manifest).resolve(Knobs(max_layer=1))
    assert caught.value.members == {"field": "max_layer", "limit": 2, "received": 1}


THRESHOLD = st.sampled_from((0.0, 0.1, 0.2, 0.3, 0.31, 0.4, 1.0))


@given(
    threshold=st.none() | THRESHOLD,
    speed=st.none() | st.floats(1, 4),
    drop=st.none() | st.floats(0.001, 0.1),
    max_layer=st.none() | st.integers(1, 6),
)
def test_nothing_that_is_asked_gets_past_the_fastestcertified_point(
    tiny_bundle: Bundle,
    threshold: float | None,
    speed: float | None,
    drop: float | None,
    max_layer: int | None,
) -> None:
    points = (
        certified_point("careful", (0.1, 0.2, 0.0), 1.5, consistency=0.01),
        certified_point("quick", (0.3, 0.4, 0.0), 2.0, consistency=0.02),
        certified_point("hasty", (0.6, 0.6, 0.0), 3.0, consistency=0.05),
    )
    bounded = tiny_bundle.manifest.model_copy(update={"operating_points": points})
    policies = _policies(bounded, fastest_point="quick")
    try:
        knobs = Knobs(threshold=threshold, speed=speed, max_accuracy_drop=drop, max_layer=max_layer)
        policy = policies.resolve(knobs).policy
    except (ConflictingKnobs, InvalidRequest, ContractRefused):
        return
    assert policy.deepest == 2
    assert all(ours <= limit for ours, limit in zip(policy.thresholds[:2], (0.3, 0.4), strict=True))


def test_what_is_too_fast_names_the_setting(manifest: BundleManifest) -> None:
    policies = _policies(manifest, fastest_point="quick")
    for knobs, members in (
        (Knobs(threshold=0.31), {"field": "threshold", "received": 0.31, "limit": 0.3}),
        (Knobs(max_layer=2), {"field": "max_layer", "received": 2}),
    ):
        with pytest.raises(InvalidRequest, match="nothing faster than operating point quick") as e:
            policies.resolve(knobs)
        assert e.value.members == {**members, "setting": "fastest_point"}
    with pytest.raises(ContractRefused) as caught:
        policies.resolve(Knobs(speed=2.9))
    assert caught.value.members["nearest"] == 2.0


def test_under_load_only_requests_that_name_nothing_slide(manifest: BundleManifest) -> None:
    policies = _policies(manifest, slide_to_point="hasty")
    assert policies.steps == 2
    names = [policies.resolve(NOTHING, slide=step).document["name"] for step in range(5)]
    assert names == ["careful", "quick", "hasty", "hasty", "hasty"]
    assert policies.resolve(NOTHING, slide=1).document["kind"] == "slid"
    assert policies.resolve(NOTHING, slide=1).document["guarantees"]
    for knobs in (
        Knobs(threshold=0.0),
        Knobs(max_disagreement=0.01),
        Knobs(speed=1.0),
        Knobs(max_layer=4),
    ):
        assert policies.resolve(knobs, slide=2) == policies.resolve(knobs)


def test_a_suspended_point_runs_full_depth_and_says_so(manifest: BundleManifest) -> None:
    suspended = {"careful"}
    policies = Policies(
        manifest, PolicyBounds(slide_to_point="hasty"), is_suspended=lambda name: name in suspended
    )
    for knobs in (NOTHING, Knobs(max_disagreement=0.01)):
        resolved = policies.resolve(knobs)
        assert resolved.policy.thresholds == (0.0, 0.0, 0.0)
        assert resolved.document["suspended"] is True
        assert resolved.document["name"] == "careful"
        assert "guarantees" not in resolved.document
    assert "suspended" not in policies.resolve(Knobs(speed=2.9)).document
    suspended.clear()
    assert "suspended" not in policies.resolve(NOTHING).document
