"""Exit rules beside entropy, each against a slow version of its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multi_exit.confidence import label_distance, margin_doubt, maximum_doubt, probabilities
from multi_exit.exit_rules import exits_along_rules, exits_by_doubt, exits_by_patience
from multi_exit.outcome import ExitOutputs


def _slow_patience(labels: list[int], patience: int) -> int:
    agreed = 0
    for index in range(1, len(labels)):
        agreed = agreed + 1 if labels[index] == labels[index - 1] else 0
        if agreed >= patience:
            return index
    return len(labels) - 1


@settings(deadline=None)
@given(
    labels=st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), min_size=1, max_size=20),
    patience=st.integers(1, 6),
)
def test_patience_counts_repeated_answers(labels: list[list[int]], patience: int) -> None:
    found = exits_by_patience(np.array(labels), patience)
    assert found.tolist() == [_slow_patience(row, patience) for row in labels]


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), threshold=st.floats(0, 1.2))
def test_doubt_strictly_below_the_threshold_leaves(seed: int, threshold: float) -> None:
    doubt = np.random.default_rng(seed).uniform(size=(20, 4)).round(1)
    found = exits_by_doubt(doubt, threshold)
    for row, taken in zip(doubt, found, strict=True):
        expected = next((i for i, value in enumerate(row) if value < threshold), 3)
        assert taken == expected


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 9))
def test_doubts_lie_between_sure_and_clueless(seed: int, classes: int) -> None:
    logits = 5 * np.random.default_rng(seed).standard_normal((10, classes))
    chances = probabilities(logits)
    for row, maximum, margin in zip(
        chances, maximum_doubt(logits), margin_doubt(logits), strict=True
    ):
        first, second = sorted(row, reverse=True)[:2]
        assert maximum == pytest.approx((1 - first) * classes / (classes - 1))
        assert margin == pytest.approx(1 - (first - second))
        assert 0 <= maximum <= 1
        assert 0 <= margin <= 1
    uniform = np.zeros((1, classes))
    assert maximum_doubt(uniform)[0] == pytest.approx(1.0)
    assert margin_doubt(uniform)[0] == pytest.approx(1.0)


def test_distance_to_the_nearest_label_embedding_is_half_the_cosine_distance() -> None:
    embeddings = np.array([[1.0, 0.0], [0.0, 2.0]])
    points = np.array([[3.0, 0.0], [1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    expected = [0.0, (1 - math.sqrt(0.5)) / 2, (1 + math.sqrt(0.5)) / 2, 0.5]
    assert label_distance(points, embeddings) == pytest.approx(expected)


def test_every_rule_runs_from_safe_to_the_first_exit() -> None:
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((50, 3, 4)).astype(np.float32)
    entropy = rng.uniform(size=(50, 3)).astype(np.float32)
    outputs = ExitOutputs(logits, entropy, rng.uniform(size=(50, 3)))
    by_rule: dict[str, list[float]] = {}
    for rule, taken in exits_along_rules(outputs):
        by_rule.setdefault(rule, []).append(float(taken.mean()))
    assert set(by_rule) == {"entropy", "maximum", "margin", "label_distance", "patience"}
    for rule, depths in by_rule.items():
        assert depths == sorted(depths, reverse=True)
        # Patience needs two exits that agree, so it never leaves at the first.
        assert depths[-1] == 0 or rule == "patience"
    without = ExitOutputs(logits, entropy)
    assert "label_distance" not in {rule for rule, _ in exits_along_rules(without)}
