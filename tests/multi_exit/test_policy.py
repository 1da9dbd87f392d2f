"""When texts leave: strictly below, never deeper than allowed, and the same row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_exit.errors import PolicyError
from multi_exit.policy import Policy

SHARE = st.floats(0, 1)
ENTROPIES = st.lists(SHARE, min_size=1, max_size=12)


@given(ENTROPIES)
def test_threshold_zero_is_full_depth(entropies: list[float]) -> None:
    policy = Policy((0.0,) * len(entropies))
    assert policy.exit_index(tuple(entropies)) == len(entropies) - 1


def test_threshold_zero_is_full_depth_even_for_entropy_exactly_zero() -> None:
    assert Policy.constant(0.0, 3).exit_index((0.0, 0.0, 0.0)) == 2


@given(ENTROPIES, SHARE)
def test_a_text_leaves_at_the_first_exit_strictly_below(
    entropies: list[float], threshold: float
) -> None:
    index = Policy.constant(threshold, len(entropies)).exit_index(entropies)
    assert all(entropy >= threshold for entropy in entropies[:index])
    assert entropies[index] < threshold or index == len(entropies) - 1


@given(ENTROPIES, SHARE, SHARE)
def test_a_higher_threshold_never_goes_deeper(
    entropies: list[float], one: float, other: float
) -> None:
    low, high = sorted((one, other))
    exits = len(entropies)
    assert Policy.constant(high, exits).exit_index(entropies) <= Policy.constant(
        low, exits
    ).exit_index(entropies)


@given(ENTROPIES, SHARE, st.data())
def test_a_cap_answers_there_at_the_latest(
    entropies: list[float], threshold: float, data: st.DataObject
) -> None:
    cap = data.draw(st.integers(0, len(entropies) - 1))
    policy = Policy.constant(threshold, len(entropies))
    assert policy.capped(cap).exit_index(entropies) == min(cap, policy.exit_index(entropies))


def test_a_broken_row_goes_on_to_the_last_exit() -> None:
    nan = float("nan")
    assert Policy.constant(1.0, 3).exit_index((nan, nan, nan)) == 2


@pytest.mark.parametrize("thresholds", [(), (1.1,), (-0.1,), (float("nan"),)])
def test_thresholds_that_make_no_sense_are_refused(thresholds: tuple[float, ...]) -> None:
    with pytest.raises(PolicyError):
        Policy(thresholds)


@pytest.mark.parametrize("last_exit", [-1, 2])
def test_a_last_exit_that_is_none_of_the_exits_is_refused(last_exit: int) -> None:
    with pytest.raises(PolicyError):
        Policy((0.1, 0.1), last_exit)


def test_another_number_of_entropies_is_refused() -> None:
    with pytest.raises(PolicyError, match="2 exits"):
        Policy((0.1, 0.1)).exit_index((0.5,))


@given(st.floats(0, 1, width=32), st.integers(0, 10))
def test_a_float32_entropy_leaves_as_its_value_does(entropy: float, tenths: int) -> None:
    policy = Policy.constant(tenths / 10, 2)
    for value in (entropy, float(np.float32(tenths / 10))):
        assert policy.leaves(0, np.float32(value)) == policy.leaves(0, value)


def test_numbers_that_are_no_number_leave_nowhere_but_at_the_cap() -> None:
    policy = Policy.constant(1.0, 4).capped(1)
    assert policy.exit_index((float("nan"),) * 4) == 1
    assert policy.exit_index((float("inf"),) * 4) == 1


def test_a_cap_is_never_lifted() -> None:
    assert Policy.constant(0.5, 4).capped(1).capped(3).deepest == 1
    with pytest.raises(PolicyError):
        Policy.constant(0.5, 4).capped(-1)


def test_no_exits_are_refused() -> None:
    with pytest.raises(PolicyError):
        Policy.constant(0.5, 0)
