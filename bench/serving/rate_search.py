"""Finds the highest rate at which a server keeps a limit on its 99th percentile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTrial:
    """One rate tried. p99_ms: None where nothing was answered; errors: not answered well."""

    rate: float
    p99_ms: float | None
    errors: int

    def keeps(self, limit_ms: float) -> bool:
        """Whether every request was answered, and 99 of 100 within the limit."""
        return self.errors == 0 and self.p99_ms is not None and self.p99_ms <= limit_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSearch:
    """best: the highest rate that kept the limit, None where none did; trials in their order."""

    limit_ms: float
    best: RateTrial | None
    trials: tuple[RateTrial, ...]


def search_rate(
    try_rate: Callable[[float], RateTrial],
    *,
    limit_ms: float,
    start: float,
    resolution: float = 0.05,
    most_trials: int = 20,
) -> RateSearch:
    """Doubles or halves from `start` until the limit lies between two rates, then bisects.

    Ends when the two are within `resolution` of each other, as a share, after `most_trials`, or
    where a rate is so low that nothing arrived.
    Supposes that a server which keeps the limit at a rate keeps it below; trials are noisy, so
    the answer is no surer than a trial is. Raises ValueError for a start that is not above 0.
    """
    if not start > 0:
        raise ValueError(f"the first rate must be above 0; got {start}")
    trials: list[RateTrial] = []
    good: RateTrial | None = None
    bad: float | None = None
    rate = start
    while len(trials) < most_trials:
        trial = try_rate(rate)
        trials.append(trial)
        if trial.p99_ms is None and trial.errors == 0:
            break  # so low that nothing arrived: nothing can be told of lower ones either
        if trial.keeps(limit_ms):
            good = trial
        else:
            bad = rate
        if good is None:
            rate /= 2
        elif bad is None:
            rate *= 2
        elif bad <= good.rate * (1 + resolution):
            break
        else:
            # The geometric mean: the resolution is a share, not a number of requests.
            rate = (good.rate * bad) ** 0.5
    return RateSearch(limit_ms=limit_ms, best=good, trials=tuple(trials))
