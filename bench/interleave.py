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
    ratios = numerator / denominator
    draws = rng.choice(ratios, size=(2000, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    return Ratio(median=float(np.median(ratios)), low=float(low), high=float(high))
