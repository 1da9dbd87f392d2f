"""Reliability and calibration error: against a slow loop over bins and texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.report.examples import assert_readable, make_outputs
from training.report.reliability import (
    calibration_table,
    reliability,
    reliability_by_exit,
    reliability_figure,
    reliability_table,
)


def slow_error(confidence: list[float], right: list[bool], bins: int) -> float:
    """Expected calibration error, bin by bin and text by text."""
    error = 0.0
    for index in range(bins):
        low, high = index / bins, (index + 1) / bins
        inside = [(c, r) for c, r in zip(confidence, right, strict=True) if low < c <= high]
        if inside:
            accuracy = sum(r for _, r in inside) / len(inside)
            mean = sum(c for c, _ in inside) / len(inside)
            error += len(inside) / len(confidence) * abs(accuracy - mean)
    return error


TEXTS = st.lists(
    st.tuples(
        st.one_of(st.floats(1e-6, 1), st.integers(1, 15).map(lambda i: i / 15)), st.booleans()
    ),
    min_size=1,
    max_size=40,
)


@settings(deadline=None)
@given(texts=TEXTS, bins=st.integers(1, 20))
def test_the_error_equals_a_slow_loop(texts: list[tuple[float, bool]], bins: int) -> None:
    confidence, right = [c for c, _ in texts], [r for _, r in texts]
    found = reliability(np.array(confidence), np.array(right), bins)
    assert found.error == pytest.approx(slow_error(confidence, right, bins), abs=1e-12)
    assert found.counts.sum() == len(texts)
    assert np.isnan(found.accuracy).tolist() == (found.counts == 0).tolist()


def test_a_text_on_a_border_counts_in_the_bin_below() -> None:
    found = reliability(np.array([0.2, 0.4, 1.0]), np.array([True, False, True]), bins=5)
    assert found.counts.tolist() == [1, 1, 0, 0, 1]


@pytest.mark.parametrize("confidence", [[], [0.0], [1.01], [float("nan")]])
def test_confidences_that_are_none_are_refused(confidence: list[float]) -> None:
    with pytest.raises(ValueError, match="confidences in"):
        reliability(np.array(confidence), np.ones(len(confidence), dtype=bool))


def test_tables_agree_with_each_other_and_with_the_texts() -> None:
    outputs, labels = make_outputs(200, 3, 4)
    found = reliability_by_exit(outputs, labels)
    bins = reliability_table(found, (1, 2, 4)).rows
    for layer, error, accuracy, confidence in calibration_table(found, (1, 2, 4)).rows:
        index = (1, 2, 4).index(int(str(layer)))
        logits = outputs.logits[:, index].astype(np.float64)
        chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        right = (logits.argmax(axis=1) == labels).tolist()
        assert error == pytest.approx(slow_error(chances.max(axis=1).tolist(), right, 15))
        assert accuracy == pytest.approx(np.mean(right))
        assert confidence == pytest.approx(chances.max(axis=1).mean())
        own = [row for row in bins if row[0] == layer]
        assert sum(int(str(row[3])) for row in own) == 200
        assert all(float(str(r[1])) < float(str(r[4])) <= float(str(r[2])) for r in own)


@pytest.mark.parametrize("exits", [1, 3, 12])
def test_no_words_overlap_or_are_cut_off(exits: int) -> None:
    outputs, labels = make_outputs(150, exits, 3)
    layers = tuple(range(1, exits + 1))
    assert_readable(reliability_figure(reliability_by_exit(outputs, labels), layers))
