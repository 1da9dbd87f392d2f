"""The exact binomial: its lower tail, and the upper bound of a share from a count."""

import math

import numpy as np


def binomial_tail(errors: int, samples: int, share: float) -> float:
    """P(X <= errors) for X ~ Binomial(samples, share), to about 1e-12 relative.

    The largest term by Loader's saddle-point expansion ("Fast and accurate computation of
    binomial probabilities", 2000), which does not cancel as a difference of log-gammas does at
    large n; the others by their ratios. Raises ValueError unless 0 <= errors <= samples and
    0 < share < 1.
    """
    check_level("share", share)
    if not 0 <= errors <= samples:
        raise ValueError(f"errors must lie in 0..samples; got {errors} of {samples}")
    if errors == samples:
        return 1.0
    rest_share = 1.0 - share
    if errors <= samples * share:
        return _term(errors, samples, share, rest_share) * _falling_sum(
            errors, samples, share, rest_share
        )
    # Above the mean the upper tail is the short one: its terms are those of the mirrored count.
    # Both shares are handed on, since 1 - (1 - share) is no longer a small share.
    upper = samples - errors - 1
    return 1.0 - _term(upper, samples, rest_share, share) * _falling_sum(
        upper, samples, rest_share, share
    )


def binomial_upper_bound(errors: int, samples: int, delta: float) -> float:
    """Clopper-Pearson: the largest share not rejected by `errors` of `samples` at level delta.

    1.0 for no samples or for all errors. Accurate to a few units in the last place.
    """
    check_level("delta", delta)
    if not 0 <= errors <= samples:
        raise ValueError(f"errors must lie in 0..samples; got {errors} of {samples}")
    if errors == samples:
        return 1.0
    low, high = errors / samples, 1.0
    while True:
        middle = 0.5 * (low + high)
        if middle <= low or middle >= high:
            return high
        if binomial_tail(errors, samples, middle) > delta:
            low = middle
        else:
            high = middle


def check_level(name: str, value: float) -> None:
    """Raises ValueError unless 0 < value < 1; `name` is what the message calls it."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1; got {value}")


def _falling_sum(errors: int, samples: int, share: float, rest_share: float) -> float:
    """Sum over j <= errors of P(X = j) / P(X = errors), for errors not above the mean."""
    total, block_start, factor = 1.0, errors, 1.0
    odds = rest_share / share
    # In blocks: the ratios fall below rounding long before 10 million terms.
    while block_start > 0 and factor > 1e-18 * total:
        j = np.arange(block_start, max(block_start - 4096, 0), -1, dtype=np.float64)
        terms = factor * np.cumprod(j / (samples - j + 1.0) * odds)
        total += math.fsum(terms)
        factor = float(terms[-1])
        block_start -= len(j)
    return total


def _term(errors: int, samples: int, share: float, rest_share: float) -> float:
    """P(X = errors) for X ~ Binomial(samples, share), 0 <= errors < samples."""
    if errors == 0:
        log_rest = math.log(rest_share) if rest_share < 0.5 else math.log1p(-share)
        return math.exp(samples * log_rest)
    rest = samples - errors
    log_term = (
        _stirling_error(samples)
        - _stirling_error(errors)
        - _stirling_error(rest)
        - _deviance(errors, samples * share)
        - _deviance(rest, samples * rest_share)
    )
    return math.exp(log_term) * math.sqrt(samples / (2.0 * math.pi * errors * rest))


def _stirling_error(n: int) -> float:
    """log(n!) minus Stirling's formula log(sqrt(2 pi n) (n/e)^n)."""
    if n <= 15:
        return math.lgamma(n + 1.0) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2.0 * math.pi)
    square = 1.0 / (n * n)
    series = 1 / 12 - square * (
        1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square * (1 / 1188)))
    )
    return series / n


def _deviance(x: float, mean: float) -> float:
    """x log(x / mean) + mean - x, without cancellation where x is near the mean."""
    if abs(x - mean) >= 0.1 * (x + mean):
        return x * math.log(x / mean) + mean - x
    ratio = (x - mean) / (x + mean)
    total = (x - mean) * ratio
    power = 2.0 * x * ratio
    for order in range(1, 1000):
        power *= ratio * ratio
        updated = total + power / (2 * order + 1)
        if updated == total:
            break
        total = updated
    return total
