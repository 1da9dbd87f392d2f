"""Whether accuracy falls by epsilon or more against full depth, tested by betting that it does not.

Every text has a signed loss d: 1 where full depth is right and the policy wrong, -1 the other way
round, 0 where both are right or both wrong. A gambler starts with 1 and stakes on every text at
odds that are fair or worse while the mean of d is epsilon or more: bet lambda multiplies the
wealth by 1 + lambda (epsilon - d). The final wealth, the e-value, then averages at most 1, so it
reaches 1/delta with probability at most delta (Markov). Source: Waudby-Smith and Ramdas 2024,
"Estimating means of bounded random variables by betting".

Assumptions: the texts are drawn independently from one distribution, or at least each, given the
earlier ones, has mean loss epsilon or more under the hypothesis. Independent texts of different
distributions are covered too, by their average mean. No assumption about how often d is not 0.
"""

import math

import numpy as np
from numpy.typing import NDArray

from multi_exit.binomial import check_level

# Bets as parts of the largest allowed one, 1 / (1 - epsilon). All in, one loss takes everything,
# but it is the best bet while nothing is lost: hence its weight. The smaller the part, the more
# losses and gains the data has. Steps of sqrt(2) leave no bet of interest far from a grid point.
_STEPS = np.arange(29)
_PARTS: NDArray[np.float64] = np.exp2(-0.5 * _STEPS)
_ALL_IN_WEIGHT = 0.3
_WEIGHTS: NDArray[np.float64] = np.where(_STEPS == 0, 0.0, 1.0 / (_STEPS + 2.0))
_WEIGHTS *= (1.0 - _ALL_IN_WEIGHT) / _WEIGHTS.sum()
_WEIGHTS[0] = _ALL_IN_WEIGHT


def accuracy_drop_p_value(
    losses: int, gains: int, samples: int, epsilon: float, *, bet: float | None = None
) -> float:
    """p-value of "accuracy is lower than at full depth by epsilon or more".

    losses, gains: texts right at full depth alone, and here alone, of `samples`. -1 < epsilon < 1;
    a negative one asks for a gain. bet: a lambda chosen on other data (`best_bet`), which gets
    half of the weight; without it all goes to a fixed mixture. Accurate to 1e-9 of itself up to
    10 million samples. Raises ValueError for counts or levels that make no sense.
    """
    return math.exp(-max(0.0, log_e_value(losses, gains, samples, epsilon, bet=bet)))


def accuracy_drop_upper_bound(
    losses: int, gains: int, samples: int, delta: float, *, bet: float | None = None
) -> float:
    """The smallest epsilon whose p-value is at most delta; negative where a gain is shown.

    1.0 for no samples or for nothing but losses. By bisection: wealth grows with epsilon.
    """
    check_level("delta", delta)
    _check_counts(losses, gains, samples)
    low, high = -1.0, 1.0
    while True:
        middle = 0.5 * (low + high)
        if middle <= low or middle >= high:
            return high
        if accuracy_drop_p_value(losses, gains, samples, middle, bet=bet) > delta:
            low = middle
        else:
            high = middle


def best_bet(losses: int, gains: int, samples: int, epsilon: float) -> float | None:
    """The bet under which wealth grows fastest on texts like these, for use on other texts.

    None where the observed drop is not below epsilon, so that no bet pays. Half a loss is added
    to what was observed: without a loss the best bet would be everything, and the first loss
    among the other texts would end the game. Raises ValueError as `accuracy_drop_p_value` does.
    """
    _check_counts(losses, gains, samples)
    _check_epsilon(epsilon)
    # How often, and how much a bet of 1 wins: a loss, the same, a gain.
    outcomes = (
        (losses + 0.5, epsilon - 1.0),
        (samples - losses - gains, epsilon),
        (gains, epsilon + 1.0),
    )

    def slope(bet: float) -> float:
        return sum(count * profit / (1.0 + bet * profit) for count, profit in outcomes)

    if slope(0.0) <= 0.0:
        return None
    # Growth is concave in the bet: its slope has one zero, and is -infinity at the largest bet.
    low, high = 0.0, 1.0 / (1.0 - epsilon)
    while True:
        middle = 0.5 * (low + high)
        if middle <= low or middle >= high:
            return low
        if slope(middle) > 0.0:
            low = middle
        else:
            high = middle


def log_e_value(
    losses: int, gains: int, samples: int, epsilon: float, *, bet: float | None = None
) -> float:
    """Logarithm of the final wealth; arguments as for `accuracy_drop_p_value`."""
    _check_counts(losses, gains, samples)
    _check_epsilon(epsilon)
    parts, weights = _PARTS, _WEIGHTS
    if bet is not None:
        if not bet >= 0.0:
            raise ValueError(f"bet must not be negative; got {bet}")
        # A bet chosen for a larger epsilon may be too large for this one: then all is bet.
        parts = np.append(parts, min(1.0, bet * (1.0 - epsilon)))
        weights = np.append(0.5 * weights, 0.5)
    same = samples - losses - gains
    with np.errstate(divide="ignore"):
        # With bet = part / (1 - epsilon) a loss multiplies wealth by exactly 1 - part.
        log_wealth = losses * np.log1p(-parts) if losses else np.zeros_like(parts)
    log_wealth = log_wealth + same * np.log1p(parts * (epsilon / (1.0 - epsilon)))
    log_wealth += gains * np.log1p(parts * ((1.0 + epsilon) / (1.0 - epsilon)))
    largest = float(log_wealth.max())
    return largest + math.log(float(weights @ np.exp(log_wealth - largest)))


def _check_counts(losses: int, gains: int, samples: int) -> None:
    if losses < 0 or gains < 0 or losses + gains > samples:
        raise ValueError(
            f"losses and gains must lie in 0..samples together; got {losses} and {gains} of "
            f"{samples}"
        )


def _check_epsilon(epsilon: float) -> None:
    if not -1.0 < epsilon < 1.0:
        raise ValueError(f"epsilon must lie strictly between -1 and 1; got {epsilon}")
