"""Times candidates in interleaved rounds and compares them as ratios.

Machines are noisy: within a round every candidate meets the same noise, so ratios of one round
are comparable where absolute times are not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of per-round ratios, with a 95 % bootstrap interval of that median."""

    median: float
    low: float
    high: float

    def scaled(self, factor: float) -> Ratio:
        """The same ratio times a known positive number."""
        return Ratio(self.median * factor, self.low * factor, self.high * factor)

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True, slots=True)
class Difference:
    """Median of per-round differences, in the unit of what was subtracted, with its interval."""

    median: float
    low: float
    high: float


def interleaved_seconds(
    candidates: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    repeats: int,
    rng: np.random.Generator,
) -> dict[str, NDArray[np.float64]]:
    """Seconds a call of each candidate, one number a round, in an order drawn anew each round.

    Two rounds go first as warm-up and are dropped.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds + 2):
        for name in rng.permutation(list(candidates)):
            run = candidates[name]
            start = time.perf_counter()
            for _ in range(repeats):
                run()
            seconds[name].append((time.perf_counter() - start) / repeats)
    return {name: np.asarray(values[2:]) for name, values in seconds.items()}


def ratio(
    numerator: NDArray[np.float64], denominator: NDArray[np.float64], rng: np.random.Generator
) -> Ratio:
    """Round-by-round ratio of two candidates of one interleaved run, both [rounds]."""
    return Ratio(*_median_with_interval(numerator / denominator, rng))


def difference(
    first: NDArray[np.float64], second: NDArray[np.float64], rng: np.random.Generator
) -> Difference:
    """Round-by-round first - second of one interleaved run, both [rounds]."""
    return Difference(*_median_with_interval(first - second, rng))


def _median_with_interval(
    values: NDArray[np.float64], rng: np.random.Generator
) -> tuple[float, float, float]:
    draws = rng.choice(values, size=(2000, len(values)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    return float(np.median(values)), float(low), float(high)
