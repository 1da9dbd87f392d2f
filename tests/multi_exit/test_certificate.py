"""The exact binomial against scipy and exact fractions; certificates against simulation."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from multi_exit.certificate import binomial_tail, binomial_upper_bound, consistency_certificate


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


def test_299_texts_without_an_error_promise_one_percent_and_298_do_not() -> None:
    passed = consistency_certificate(0, 299, epsilon=0.01, delta=0.05)
    assert passed is not None
    assert "At most 1% of" in passed.statement
    assert "95%" in passed.statement
    assert passed.upper_bound <= 0.01
    assert consistency_certificate(0, 298, epsilon=0.01, delta=0.05) is None


@given(st.floats(1e-6, 0.5), st.floats(1e-6, 0.5))
def test_the_statement_does_not_promise_more_than_was_shown(epsilon: float, delta: float) -> None:
    found = consistency_certificate(0, 100_000_000, epsilon=epsilon, delta=delta)
    assert found is not None
    stated, confidence = (float(part) for part in re.findall(r"([\d.e-]+)%", found.statement))
    assert stated / 100 == pytest.approx(epsilon, rel=1e-9)
    assert 1 - confidence / 100 == pytest.approx(delta, rel=1e-5)


@given(st.integers(1, 5000), st.data(), st.floats(0.001, 0.5))
def test_the_upper_bound_is_clopper_pearson(
    samples: int, data: st.DataObject, delta: float
) -> None:
    errors = data.draw(st.integers(0, samples - 1))
    expected = stats.beta.ppf(1 - delta, errors + 1, samples - errors)
    assert binomial_upper_bound(errors, samples, delta) == pytest.approx(expected, rel=1e-9)


@given(st.integers(1, 3000), st.data())
def test_a_certificate_is_given_where_the_bound_is_within_epsilon(
    samples: int, data: st.DataObject
) -> None:
    errors = data.draw(st.integers(0, samples))
    epsilon = data.draw(st.floats(0.001, 0.2))
    found = consistency_certificate(errors, samples, epsilon=epsilon, delta=0.05)
    bound = binomial_upper_bound(errors, samples, 0.05)
    if abs(bound - epsilon) > 1e-9:
        assert (found is not None) == (bound < epsilon)


def test_degenerate_counts_promise_nothing() -> None:
    assert binomial_tail(0, 0, 0.01) == 1.0
    assert binomial_upper_bound(0, 0, 0.05) == 1.0
    assert binomial_upper_bound(7, 7, 0.05) == 1.0
    assert consistency_certificate(0, 0, epsilon=0.01, delta=0.05) is None


@pytest.mark.parametrize(("errors", "samples", "share"), [(-1, 5, 0.1), (6, 5, 0.1), (1, 5, 0.0)])
def test_counts_that_make_no_sense_are_refused(errors: int, samples: int, share: float) -> None:
    with pytest.raises(ValueError, match="must lie"):
        binomial_tail(errors, samples, share)


@pytest.mark.parametrize("share", [0.0101, 0.012, 0.02])
def test_a_share_above_epsilon_is_certified_at_most_delta_of_the_time(share: float) -> None:
    rng = np.random.default_rng(0)
    redraws, samples = 2000, 1540
    counts = rng.binomial(samples, share, redraws)
    wrong = sum(
        consistency_certificate(int(count), samples, epsilon=0.01, delta=0.05) is not None
        for count in counts
    )
    assert wrong <= stats.binom.ppf(0.999, redraws, 0.05)
