"""Risk control picks the fastest policy of a path, and keeps its promise on average."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from multi_exit.risk_control import controlled, errors_along_path, expected_risk_bound


@given(st.lists(st.integers(0, 40), max_size=8), st.integers(1, 99))
def test_the_fastest_policy_within_epsilon_is_found_as_the_formula_says(
    errors: list[int], percent: int
) -> None:
    samples = 40
    allowed = [
        index
        for index in range(len(errors))
        if all(
            # (n * risk + 1) / (n + 1) with exact fractions, for it and for every slower one.
            (samples * Fraction(count, samples) + 1) / (samples + 1) <= Fraction(percent, 100)
            for count in errors[: index + 1]
        )
    ]
    assert controlled(errors, samples, percent / 100) == max(allowed, default=None)


def test_a_count_that_falls_again_does_not_open_the_path() -> None:
    assert controlled((0, 9, 0), 99, 0.01) == 0
    assert controlled((1, 0, 0), 99, 0.01) is None


def test_no_texts_and_no_policies_control_nothing() -> None:
    assert controlled((0,), 0, 0.5) is None
    assert controlled((), 100, 0.5) is None


@given(hnp.arrays(np.bool_, st.tuples(st.integers(1, 5), st.integers(0, 9))))
def test_a_text_counts_from_the_first_policy_that_gets_it_wrong(
    disagrees: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
) -> None:
    expected = tuple(
        sum(bool(text[: policy + 1].any()) for text in disagrees.T)
        for policy in range(len(disagrees))
    )
    assert errors_along_path(disagrees) == expected


@pytest.mark.parametrize("samples", [3, 4, 5])
@pytest.mark.parametrize("epsilon", [0.2, 0.25, 0.34, 0.5])
def test_over_every_order_of_known_texts_the_next_one_disagrees_at_most_epsilon(
    samples: int, epsilon: float
) -> None:
    # Exchangeable texts exactly: each of n + 1 fixed ones is the next one once, the path has
    # losses that fall again, and the promise must hold for every such population.
    columns = [
        (False, False, False),
        (False, True, False),
        (True, False, True),
        (False, True, True),
    ]
    tight = 0.0
    for population in itertools.combinations_with_replacement(columns, samples + 1):
        wrong = 0
        for left_out in range(samples + 1):
            calibration = np.array(population[:left_out] + population[left_out + 1 :]).T
            chosen = controlled(errors_along_path(calibration), samples, epsilon)
            wrong += chosen is not None and population[left_out][chosen]
        assert wrong / (samples + 1) <= epsilon
        tight = max(tight, wrong / (samples + 1))
    assert tight > 0 or epsilon * (samples + 1) < 1


@pytest.mark.parametrize(("errors", "samples"), [(-1, 5), (6, 5)])
def test_counts_that_make_no_sense_are_refused(errors: int, samples: int) -> None:
    with pytest.raises(ValueError, match=r"errors must lie in 0\.\.samples"):
        expected_risk_bound(errors, samples)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_an_epsilon_that_makes_no_sense_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon must lie"):
        controlled((0,), 5, epsilon)
