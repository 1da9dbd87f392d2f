"""Betting against an accuracy drop: exact products, calibrated errors, and bets that pay."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import optimize, stats

from bench.quality.certificates import REDRAWS, accuracy_rows, adversarial_rows
from multi_exit.betting import (
    _PARTS,
    _WEIGHTS,
    accuracy_drop_p_value,
    accuracy_drop_upper_bound,
    best_bet,
    log_e_value,
)

Counts = tuple[int, int, int]


@st.composite
def counts(draw: st.DrawFn, most: int = 500) -> Counts:
    """Losses, gains and samples."""
    samples = draw(st.integers(1, most))
    losses = draw(st.integers(0, samples))
    return losses, draw(st.integers(0, samples - losses)), samples


def exact_wealth(found: Counts, epsilon: float, bet: float | None) -> float:
    """The final wealth as the docstring has it: a product over texts, in 60 digits."""
    losses, gains, samples = found
    bets = [(Fraction(part) / (1 - Fraction(epsilon)), Fraction(w)) for part, w in
            zip(_PARTS.tolist(), _WEIGHTS.tolist(), strict=True)]  # fmt: skip
    if bet is not None:
        largest = 1 / (1 - Fraction(epsilon))
        bets = [(b, w / 2) for b, w in bets] + [(min(Fraction(bet), largest), Fraction(1, 2))]
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 60, -(10**12), 10**12
        total = Decimal(0)
        for chosen, weight in bets:
            wealth = Decimal(weight.numerator) / weight.denominator
            for loss, count in ((1, losses), (0, samples - losses - gains), (-1, gains)):
                factor = 1 + chosen * (Fraction(epsilon) - loss)
                wealth *= (Decimal(factor.numerator) / factor.denominator) ** count
            total += wealth
        return float(total.ln())


@given(counts(), st.floats(-0.9, 0.9), st.none() | st.floats(0, 3))
def test_the_e_value_is_the_mixture_of_products(
    found: Counts, epsilon: float, bet: float | None
) -> None:
    # 0 ** 0 is undefined in decimal arithmetic: a bet of everything and no loss.
    assume(found[0] > 0)
    expected = exact_wealth(found, epsilon, bet)
    assert log_e_value(*found, epsilon, bet=bet) == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("bet", [None, 0.0471])
@pytest.mark.parametrize(
    ("losses", "gains"), [(12_000, 5_000), (90_000, 1_000), (510_000, 500_000)]
)
def test_ten_million_samples_keep_nine_digits(losses: int, gains: int, bet: float | None) -> None:
    found = (losses, gains, 10_000_000)
    expected = exact_wealth(found, 0.002, bet)
    assert log_e_value(*found, 0.002, bet=bet) == pytest.approx(expected, abs=1e-9)


@given(counts(most=5000), st.floats(-0.5, 0.5), st.floats(0.001, 0.4), st.none() | st.floats(0, 3))
def test_a_smaller_epsilon_is_never_easier_to_certify(
    found: Counts, epsilon: float, step: float, bet: float | None
) -> None:
    easier = accuracy_drop_p_value(*found, epsilon + step, bet=bet)
    assert easier <= accuracy_drop_p_value(*found, epsilon, bet=bet) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.05, 0.3, -0.2])
@pytest.mark.parametrize("bet", [None, 0.4])
def test_wealth_averages_at_most_one_while_the_drop_is_epsilon(
    epsilon: float, bet: float | None
) -> None:
    # All outcomes of 12 texts, whatever the gains: the sum over outcomes is exact.
    samples = 12
    for gain in (0.0, 0.1, (1 - abs(epsilon)) / 2 - 1e-9):
        if gain + epsilon < 0:
            continue
        shares = (gain + epsilon, gain, 1 - epsilon - 2 * gain)
        mean = math.fsum(
            stats.multinomial.pmf((losses, gains, samples - losses - gains), samples, shares)
            * math.exp(log_e_value(losses, gains, samples, epsilon, bet=bet))
            for losses, gains in itertools.product(range(samples + 1), repeat=2)
            if losses + gains <= samples
        )
        assert mean == pytest.approx(1.0, rel=1e-9)


@given(counts(most=3000), st.floats(0.001, 0.5), st.none() | st.floats(0, 3))
def test_the_bound_is_the_smallest_epsilon_that_passes(
    found: Counts, delta: float, bet: float | None
) -> None:
    bound = accuracy_drop_upper_bound(*found, delta, bet=bet)
    assert (found[0] - found[1]) / found[2] <= bound <= 1.0
    if bound < 1.0:
        assert accuracy_drop_p_value(*found, bound, bet=bet) <= delta
    assert accuracy_drop_p_value(*found, bound - 1e-9, bet=bet) > delta


def test_the_bound_knows_no_texts_nothing_but_losses_and_a_gain() -> None:
    assert accuracy_drop_upper_bound(0, 0, 0, 0.05) == 1.0
    assert accuracy_drop_upper_bound(9, 0, 9, 0.05) == 1.0
    assert -0.1 < accuracy_drop_upper_bound(0, 100, 1000, 0.05) < 0.0
    assert accuracy_drop_p_value(0, 0, 0, 0.01) == 1.0


@given(counts(most=3000), st.floats(0.001, 0.5))
def test_the_best_bet_maximises_growth_with_half_a_loss_more(found: Counts, epsilon: float) -> None:
    losses, gains, samples = found
    bet = best_bet(losses, gains, samples, epsilon)
    same = samples - losses - gains

    def shrinkage(chosen: float) -> float:
        return -(
            (losses + 0.5) * math.log1p(chosen * (epsilon - 1))
            + same * math.log1p(chosen * epsilon)
            + gains * math.log1p(chosen * (epsilon + 1))
        )

    largest = 1 / (1 - epsilon)
    best = optimize.minimize_scalar(shrinkage, bounds=(0, largest), method="bounded").fun
    if bet is None:
        assert best >= -1e-6
    else:
        assert 0 <= bet < largest
        assert shrinkage(bet) <= best + 1e-9


def test_a_bet_tuned_on_other_texts_certifies_more() -> None:
    bet = best_bet(75, 50, 5000, 0.01)
    assert bet is not None
    tuned = accuracy_drop_p_value(150, 100, 10_000, 0.01, bet=bet)
    assert tuned < 0.2 * accuracy_drop_p_value(150, 100, 10_000, 0.01)


def test_simulated_drops_of_epsilon_are_certified_at_most_delta_of_the_time() -> None:
    rows = accuracy_rows(np.random.default_rng(0), 1500, 750)
    errors = [row for row in rows if row.limit is not None]
    assert len(errors) == 12
    assert all(row.happened <= stats.binom.ppf(0.999, REDRAWS, row.limit) for row in errors)
    power = [row for row in rows if row.case == "1,500 texts, drop 0.25 epsilon, gains 0.1%"]
    assert {row.test: row.happened / row.of > 0.5 for row in power} == {
        "mixture": True, "tuned bet": True, "losses alone": True
    }  # fmt: skip


def test_adversarial_streams_are_certified_at_most_delta_of_the_time() -> None:
    rows = adversarial_rows(np.random.default_rng(0), 400)
    assert len(rows) == 7
    assert all(row.happened <= stats.binom.ppf(0.999, REDRAWS, 0.05) for row in rows)


@pytest.mark.parametrize("found", [(-1, 0, 5), (0, -1, 5), (3, 3, 5)])
def test_counts_that_make_no_sense_are_refused(found: Counts) -> None:
    for call in (accuracy_drop_p_value, best_bet, accuracy_drop_upper_bound):
        with pytest.raises(ValueError, match="losses and gains must lie"):
            call(*found, 0.05)


@pytest.mark.parametrize("epsilon", [1.0, -1.0, float("nan")])
def test_levels_and_bets_that_make_no_sense_are_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon must lie"):
        accuracy_drop_p_value(0, 0, 5, epsilon)
    with pytest.raises(ValueError, match="delta must lie"):
        accuracy_drop_upper_bound(0, 0, 5, epsilon)
    for bet in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="bet must not be negative"):
            accuracy_drop_p_value(0, 0, 5, 0.1, bet=bet)
