"""The exact binomial against scipy and exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from multi_exit.binomial import binomial_tail, binomial_upper_bound


@given(st.integers(1, 60), st.data())
def test_small_counts_equal_exact_fractions(samples: int, data: st.DataObject) -> None:
    errors = data.draw(st.integers(0, samples))
    share = Fraction(data.draw(st.integers(1, 99)), 100)
    exact = sum(
        math.comb(samples, k) * share**k * (1 - share) ** (samples - k) for k in range(errors + 1)
    )
    # Rounding the share to a float alone moves the result by up to 60 times 1e-16.
    assert binomial_tail(errors, samples, float(share)) == pytest.approx(float(exact), rel=1e-13)


@given(st.integers(1, 10_000_000), st.floats(1e-7, 0.5), st.floats(-6, 6))
def test_large_counts_equal_the_incomplete_beta_function(
    samples: int, share: float, deviations: float
) -> None:
    mean = samples * share
    errors = int(np.clip(mean + deviations * math.sqrt(mean * (1 - share)), 0, samples - 1))
    found = binomial_tail(errors, samples, share)
    expected = special.betaincc(errors + 1, samples - errors, share)
    assert found == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("samples", [100, 10_000, 10_000_000])
@pytest.mark.parametrize("share", [0.001, 0.01, 0.3])
def test_scipy_agrees_to_1e_12(samples: int, share: float) -> None:
    mean = samples * share
    for deviations in (-3, -1, 0, 1, 3):
        errors = max(0, int(mean + deviations * math.sqrt(mean)))
        # Not binom.cdf, which at 10 million samples is itself off by 2e-12.
        expected = special.betaincc(errors + 1, samples - errors, share)
        assert binomial_tail(errors, samples, share) == pytest.approx(expected, rel=1e-12)
        if samples <= 10_000:
            cdf = float(stats.binom.cdf(errors, samples, share))
            assert binomial_tail(errors, samples, share) == pytest.approx(cdf, rel=1e-12)


@pytest.mark.parametrize("samples", [1_000_000, 10_000_000])
@pytest.mark.parametrize("errors", [1, 2, 5])
def test_a_tiny_share_keeps_its_digits_above_the_mean(samples: int, errors: int) -> None:
    share = 1.0 / samples
    log_term = samples * math.log1p(-share)
    exact = math.fsum(
        math.comb(samples, k) * share**k * math.exp(log_term - k * math.log1p(-share))
        for k in range(errors + 1)
    )
    assert binomial_tail(errors, samples, share) == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("share", [1e-300, 1e-20, 1e-17, 1 - 2**-53])
@pytest.mark.parametrize("errors", [0, 3, 9])
def test_shares_next_to_zero_and_one_have_a_tail(share: float, errors: int) -> None:
    exact = math.fsum(
        math.comb(10, k) * share**k * (1 - share) ** (10 - k) for k in range(errors + 1)
    )
    assert binomial_tail(errors, 10, share) == pytest.approx(exact, rel=1e-12)


@given(st.integers(1, 5000), st.data(), st.floats(0.001, 0.5))
def test_the_upper_bound_is_clopper_pearson(
    samples: int, data: st.DataObject, delta: float
) -> None:
    errors = data.draw(st.integers(0, samples - 1))
    expected = stats.beta.ppf(1 - delta, errors + 1, samples - errors)
    assert binomial_upper_bound(errors, samples, delta) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("errors", "samples", "share"), [(-1, 5, 0.1), (6, 5, 0.1), (1, 5, 0.0)])
def test_counts_that_make_no_sense_are_refused(errors: int, samples: int, share: float) -> None:
    with pytest.raises(ValueError, match="must lie"):
        binomial_tail(errors, samples, share)


def test_no_samples_and_nothing_but_errors_bound_nothing() -> None:
    assert binomial_tail(0, 0, 0.01) == 1.0
    assert binomial_upper_bound(0, 0, 0.05) == 1.0
    assert binomial_upper_bound(7, 7, 0.05) == 1.0
