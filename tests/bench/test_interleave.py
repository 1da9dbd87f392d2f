"""Interleaved timing and ratios with known answers."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench.interleave import interleaved_seconds, ratio


def test_every_candidate_runs_in_every_round_in_an_order_that_varies() -> None:
    calls: list[str] = []
    candidates = {name: (lambda name=name: calls.append(name)) for name in ("a", "b", "c")}
    rng = np.random.default_rng(0)
    seconds = interleaved_seconds(candidates, rounds=8, repeats=1, rng=rng)
    rounds = [calls[at : at + 3] for at in range(0, len(calls), 3)]
    assert all(sorted(names) == ["a", "b", "c"] for names in rounds)
    assert len({tuple(names) for names in rounds}) > 1
    assert len(rounds) == 8 + 2
    assert {len(values) for values in seconds.values()} == {8}


def test_a_candidate_that_takes_twice_as_long_has_a_ratio_of_about_two() -> None:
    rng = np.random.default_rng(0)
    candidates = {"one": lambda: time.sleep(0.01), "two": lambda: time.sleep(0.02)}
    seconds = interleaved_seconds(candidates, rounds=5, repeats=1, rng=rng)
    found = ratio(seconds["two"], seconds["one"], rng)
    # Sleeping only ever takes longer than asked, by the same small amount for both.
    assert 1.2 < found.median < 2.5


@given(
    st.lists(st.floats(0.1, 10.0), min_size=2, max_size=30),
    st.floats(0.1, 10.0),
)
def test_noise_that_hits_both_alike_cancels(noise: list[float], factor: float) -> None:
    base = np.asarray(noise)
    found = ratio(base * factor, base, np.random.default_rng(0))
    np.testing.assert_allclose([found.low, found.median, found.high], factor)
