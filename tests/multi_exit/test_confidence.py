"""Entropy and probabilities against an independent slow version, and at the extremes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special

from multi_exit.confidence import log_probabilities, normalised_entropy, probabilities

LOGITS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(0, 4), st.integers(2, 200)),
    elements=st.floats(-1e4, 1e4),
)


def _slow_entropy(row: list[float]) -> float:
    largest = max(row)
    weights = [math.exp(value - largest) for value in row]
    total = math.fsum(weights)
    shares = [weight / total for weight in weights]
    return -math.fsum(p * math.log(p) for p in shares if p > 0) / math.log(len(row))


@given(LOGITS)
def test_entropy_equals_the_definition_and_lies_in_zero_to_one(logits: np.ndarray) -> None:
    found = normalised_entropy(logits)
    expected = [_slow_entropy(row) for row in logits.tolist()]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert ((found >= 0) & (found <= 1)).all()


@given(LOGITS, st.floats(-1e3, 1e3))
def test_adding_the_same_to_all_logits_changes_nothing(logits: np.ndarray, shift: float) -> None:
    np.testing.assert_allclose(
        normalised_entropy(logits), normalised_entropy(logits + shift), atol=1e-9
    )


@given(LOGITS)
def test_logarithms_equal_those_of_scipy(logits: np.ndarray) -> None:
    np.testing.assert_allclose(
        log_probabilities(logits), special.log_softmax(logits, axis=1), rtol=1e-12, atol=1e-12
    )


@given(st.integers(2, 200), st.floats(-1e4, 1e4))
def test_equal_logits_are_as_unsure_as_can_be(labels: int, value: float) -> None:
    assert normalised_entropy(np.full((1, labels), value))[0] == pytest.approx(1.0, abs=1e-14)


@given(LOGITS)
def test_float32_logits_are_computed_in_float64(logits: np.ndarray) -> None:
    single = logits.astype(np.float32)
    np.testing.assert_array_equal(
        normalised_entropy(single), normalised_entropy(single.astype(np.float64))
    )


@given(LOGITS)
def test_probabilities_sum_to_one_and_keep_the_order(logits: np.ndarray) -> None:
    found = probabilities(logits)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    # Logits that differ by less than rounding may tie; the largest is never beaten.
    likeliest = found[np.arange(len(found)), logits.argmax(axis=1)]
    np.testing.assert_array_equal(likeliest, found.max(axis=1))


def test_equal_logits_are_full_entropy_and_one_large_one_is_none() -> None:
    found = normalised_entropy(np.array([[7.0, 7.0, 7.0], [-100.0, 5.0, -100.0]]))
    np.testing.assert_allclose(found, [1.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_a_logit_that_is_not_finite_is_refused(broken: float) -> None:
    with pytest.raises(ValueError, match=r"rows \[1\]"):
        normalised_entropy(np.array([[1.0, 2.0], [broken, 0.0]]))


@pytest.mark.parametrize("shape", [(3,), (2, 1), (2, 2, 2)])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="K >= 2"):
        normalised_entropy(np.zeros(shape))
