"""Poisson arrivals: the same for the same seed, at the rate asked for, with exponential gaps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bench.serving.arrivals import poisson_arrivals


def test_the_same_seed_gives_the_same_arrivals_and_another_seed_others() -> None:
    first, again, other = (
        poisson_arrivals(50, 2, np.random.default_rng(seed)) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert len(first) != len(other) or not np.array_equal(first, other)


@pytest.mark.parametrize(("rate", "seconds"), [(0.1, 5.0), (1.0, 1.0), (200.0, 10.0)])
def test_arrivals_ascend_within_the_time(rate: float, seconds: float) -> None:
    for seed in range(20):
        arrivals = poisson_arrivals(rate, seconds, np.random.default_rng(seed))
        assert (np.diff(arrivals) >= 0).all()
        assert ((arrivals >= 0) & (arrivals < seconds)).all()


def test_numbers_of_arrivals_vary_as_a_poisson_number_does() -> None:
    rng = np.random.default_rng(0)
    counts = np.array([len(poisson_arrivals(20, 2, rng)) for _ in range(2000)])
    # Mean and variance of a Poisson number are both 40; bounds are five standard errors.
    assert abs(counts.mean() - 40) < 5 * math.sqrt(40 / 2000)
    assert abs(counts.var() - 40) < 5 * 40 * math.sqrt(2 / 2000)


def test_gaps_are_exponential() -> None:
    gaps = np.diff(poisson_arrivals(100, 100, np.random.default_rng(1)))
    assert stats.kstest(gaps, stats.expon(scale=0.01).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("rate", "seconds"), [(0, 1), (-1, 1), (1, 0), (math.nan, 1), (1e9, math.inf)]
)
def test_rates_and_times_that_are_none_are_refused(rate: float, seconds: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        poisson_arrivals(rate, seconds, np.random.default_rng(0))
