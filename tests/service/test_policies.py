"""What a request resolves to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_exit.bundle import Bundle, BundleManifest
from multi_exit.errors import ConfigurationError
from service.errors import InvalidRequest
from service.policies import Policies


def _policies(
    manifest: BundleManifest, threshold: float | None = None, point: str | None = None
) -> Policies:
    return Policies(manifest, default_threshold=threshold, default_point=point)


def test_nothing_asked_is_full_depth_where_neither_operator_nor_bundle_says_otherwise(
    tiny_bundle: Bundle,
) -> None:
    resolved = _policies(tiny_bundle.manifest).resolve(None, None)
    assert resolved.document == {"kind": "default", "thresholds": [0.0, 0.0, 0.0]}


def test_the_bundle_s_default_point_is_the_default(tiny_bundle: Bundle) -> None:
    manifest = tiny_bundle.manifest.model_copy(update={"default_point": "fast"})
    document = _policies(manifest).resolve(None, None).document
    assert document == {"kind": "default", "name": "fast", "thresholds": [0.5, 0.4, 0.0]}


def test_the_operator_s_default_wins_over_the_bundle_s(tiny_bundle: Bundle) -> None:
    manifest = tiny_bundle.manifest.model_copy(update={"default_point": "fast"})
    resolved = _policies(manifest, threshold=0.1).resolve(None, None)
    assert resolved.policy.thresholds == (0.1, 0.1, 0.1)


def test_a_default_point_that_the_bundle_lacks_stops_the_start(tiny_bundle: Bundle) -> None:
    with pytest.raises(ConfigurationError, match=r"'slow' is not.*it has fast"):
        _policies(tiny_bundle.manifest, point="slow")


def test_two_defaults_stop_the_start(tiny_bundle: Bundle) -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        _policies(tiny_bundle.manifest, threshold=0.1, point="fast")


def test_a_threshold_wins_over_the_default(tiny_bundle: Bundle) -> None:
    resolved = _policies(tiny_bundle.manifest, point="fast").resolve(0.0, None)
    assert resolved.document == {"kind": "threshold", "thresholds": [0.0, 0.0, 0.0]}


@given(max_layer=st.integers(1, 100), threshold=st.none() | st.floats(0, 1))
def test_max_layer_caps_whatever_applies_at_the_deepest_exit_it_allows(
    tiny_bundle: Bundle, max_layer: int, threshold: float | None
) -> None:
    resolved = _policies(tiny_bundle.manifest, point="fast").resolve(threshold, max_layer)
    exits = tiny_bundle.manifest.exits
    assert exits[resolved.policy.deepest] == max(layer for layer in exits if layer <= max_layer)
    assert resolved.document["max_layer"] == max_layer


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
        _policies(manifest).resolve(None, 1)
    assert caught.value.members == {"field": "max_layer", "limit": 2, "received": 1}
