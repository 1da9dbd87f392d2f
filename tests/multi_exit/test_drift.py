"""The drift test: a fair game by exact sums, quick after a calm, and a state that survives JSON."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bench.quality.drift_watch import ALPHA, EPSILON, delays, new_watch, watch
from multi_exit.drift import DriftTest, alternatives, unspent

RowsSeen = st.lists(st.booleans(), max_size=60)


def after(rows: Iterable[bool], epsilon: float = 0.1, alpha: float = 0.01) -> DriftTest:
    test = DriftTest(epsilon=epsilon, alpha=alpha)
    for disagreed in rows:
        test = test.updated(disagreed)
    return test


@given(RowsSeen, st.floats(0.001, 0.5))
def test_the_e_value_is_the_recursion_in_plain_numbers(rows: list[bool], epsilon: float) -> None:
    total = unspent(len(rows))
    shares = alternatives(epsilon)
    for q in shares:
        wealth = 0.0
        for index, disagreed in enumerate(rows):
            factor = q / epsilon if disagreed else (1 - q) / (1 - epsilon)
            wealth = factor * (wealth + unspent(index) - unspent(index + 1))
        total += wealth / len(shares)
    assert after(rows, epsilon).e_value == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("epsilon", [0.01, 0.2, 0.7])
@pytest.mark.parametrize("part", [1.0, 0.5, 0.0])
def test_the_game_is_fair_at_epsilon_and_loses_below(epsilon: float, part: float) -> None:
    share = part * epsilon
    mean = math.fsum(
        math.prod(share if disagreed else 1 - share for disagreed in rows)
        * after(rows, epsilon).e_value
        for rows in itertools.product((False, True), repeat=8)
    )
    if part == 1.0:
        assert mean == pytest.approx(1.0, rel=1e-12)
    else:
        assert mean < 1.0


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.5, 0.999])
def test_every_alternative_lies_between_epsilon_and_one(epsilon: float) -> None:
    found = alternatives(epsilon)
    assert all(epsilon < q < 1 for q in found)
    assert list(found) == sorted(found)


def test_stakes_are_positive_and_never_exceed_what_there_is() -> None:
    left = [unspent(rows) for rows in (*range(1000), 10**6, 10**6 + 1, 10**9)]
    assert left[0] == 1.0
    assert all(before > later > 0 for before, later in itertools.pairwise(left))


def test_an_alarm_is_given_when_the_e_value_is_reached_and_stays() -> None:
    test = DriftTest(epsilon=0.1, alpha=0.01)
    reached = False
    for disagreed in [True] * 12 + [False] * 300:
        test = test.updated(disagreed)
        reached |= test.e_value >= 100
        assert test.alarm == reached
    assert reached
    assert test.e_value < 1
    assert (test.rows, test.disagreements) == (312, 12)


def test_updating_leaves_the_test_before_as_it_was() -> None:
    before = after([True, False])
    copy = DriftTest.from_document(before.as_document())
    before.updated(True)
    assert before == copy


@given(RowsSeen, RowsSeen)
def test_a_state_that_went_through_json_goes_on_exactly(rows: list[bool], more: list[bool]) -> None:
    restored = DriftTest.from_document(json.loads(json.dumps(after(rows).as_document())))
    assert restored == after(rows)
    for disagreed in more:
        restored = restored.updated(disagreed)
    assert restored == after(rows + more)


def test_evidence_beyond_the_largest_float_is_capped() -> None:
    test = after([True] * 500)
    assert test.log_e_value > 1000
    assert math.isfinite(test.e_value)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.0},
        {"epsilon": "0.1"},
        {"alpha": 1.0},
        {"rows": 0},
        {"rows": 2.0},
        {"disagreements": 3},
        {"disagreements": True},
        {"log_wealth": [0.0]},
        {"log_wealth": [math.nan] * 8},
        {"log_wealth": None},
        {"alarm": 1},
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, Any]) -> None:
    document = after([True, False]).as_document()
    with pytest.raises(ValueError, match=r".+"):
        DriftTest.from_document({**document, **change})
    name = next(iter(change))
    with pytest.raises(ValueError, match="not the state of a drift test"):
        DriftTest.from_document({key: value for key, value in document.items() if key != name})


def test_the_simulation_of_many_runs_is_the_test_itself() -> None:
    shares = np.full(400, 6 * EPSILON)
    found = watch(new_watch(3), shares, np.random.default_rng(5))
    drawn = np.random.default_rng(5)
    seen = np.array([drawn.random(3) < share for share in shares])
    for run in range(3):
        test, alarm = DriftTest(epsilon=EPSILON, alpha=ALPHA), 0
        peak = 1.0
        for disagreed in seen[:, run].tolist():
            test = test.updated(disagreed)
            peak = max(peak, test.e_value)
            alarm = test.rows if test.alarm and not alarm else alarm
        assert found.peak[run] == pytest.approx(peak, rel=1e-9)
        assert found.alarms[run] == alarm > 0
        assert np.log(found.wealth[:, run]) == pytest.approx(test.log_wealth, abs=1e-9)


def test_calm_rows_rarely_alarm_and_a_change_after_them_soon_does() -> None:
    peak, found = delays(np.random.default_rng(0), 60, 20_000, factors=(2.0, 4.0))
    for alpha in (0.01, 0.05, 0.2):
        assert (peak >= 1 / alpha).sum() <= stats.binom.ppf(0.999, len(peak), alpha)
    by_name = {delay.what: delay for delay in found}
    assert all(delay.missed == 0 for delay in found)
    for factor in ("2", "4"):
        early = by_name[f"{factor} epsilon at the start"]
        late = by_name[f"{factor} epsilon after 20,000 rows at 1 epsilon"]
        # For a change known in advance the optimum is log(1 / alpha) / KL.
        assert 0.8 * early.optimum < early.mean < 2 * early.optimum
        assert early.mean < late.mean < 4 * late.optimum
