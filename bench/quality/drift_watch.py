"""Simulates the drift test, many runs at once: false alarms in a long calm, delays of true ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multi_exit.drift import log_factors, unspent

EPSILON, ALPHA = 0.01, 0.01


@dataclass(frozen=True, slots=True)
class Delay:
    """Shadow rows from a change to the alarm; optimum: log(1 / alpha) / KL, for a known change."""

    what: str
    runs: int
    mean: float
    median: float
    ninth_decile: float
    missed: int
    optimum: float


@dataclass(frozen=True, slots=True)
class Watch:
    """Runs of the drift test. wealth [alternatives, runs] after `rows` rows, `peak` [runs] the
    largest e-value so far, alarms [runs] the first row of an alarm, counted from 1; 0 for none."""

    rows: int
    wealth: NDArray[np.float64]
    peak: NDArray[np.float64]
    alarms: NDArray[np.int64]


def delays(
    rng: np.random.Generator,
    runs: int,
    calm_rows: int,
    factors: Sequence[float] = (1.5, 2.0, 4.0),
) -> tuple[NDArray[np.float64], list[Delay]]:
    """Largest e-value [runs] of a calm at exactly epsilon, and delays at its start and end.

    factors: by how much the disagreement, epsilon in the calm, is multiplied.
    """
    start = new_watch(runs)
    calms = {
        f"after {calm_rows:,} rows at {multiple:g} epsilon": watch(
            start, np.full(calm_rows, multiple * EPSILON), rng
        )
        for multiple in (1.0, 0.5)
    }
    found = []
    for factor in factors:
        for name, before in {"at the start": start, **calms}.items():
            after = watch(before, np.full(40_000, factor * EPSILON), rng, stop_early=True)
            # Runs with a false alarm in the calm have no delay.
            quiet = before.alarms == 0
            seen = after.alarms[quiet & (after.alarms > 0)] - before.rows
            found.append(
                Delay(
                    what=f"{factor:g} epsilon {name}",
                    runs=int(quiet.sum()),
                    mean=float(seen.mean()),
                    median=float(np.median(seen)),
                    ninth_decile=float(np.quantile(seen, 0.9)),
                    missed=int((quiet & (after.alarms == 0)).sum()),
                    optimum=-math.log(ALPHA) / _divergence(factor * EPSILON, EPSILON),
                )
            )
    return next(iter(calms.values())).peak, found


def new_watch(runs: int) -> Watch:
    alternatives = len(log_factors(EPSILON, True))
    return Watch(0, np.zeros((alternatives, runs)), np.ones(runs), np.zeros(runs, dtype=np.int64))


def watch(
    before: Watch,
    shares: NDArray[np.float64],
    rng: np.random.Generator,
    *,
    stop_early: bool = False,
) -> Watch:
    """`multi_exit.drift.DriftTest` for many runs at once, over len(shares) more rows.

    shares [rows]: the probability of a disagreement. stop_early: once every run has had an alarm.
    """
    runs = before.peak.shape[0]
    disagreed, agreed = (np.exp(log_factors(EPSILON, flag))[:, None] for flag in (True, False))
    wealth, peak, alarms = before.wealth.copy(), before.peak.copy(), before.alarms.copy()
    for done, share in enumerate(shares, start=before.rows + 1):
        wealth += unspent(done - 1) - unspent(done)
        wealth *= np.where(rng.random(runs) < share, disagreed, agreed)
        np.maximum(peak, wealth.mean(axis=0) + unspent(done), out=peak)
        alarms[(peak >= 1 / ALPHA) & (alarms == 0)] = done
        if stop_early and alarms.all():
            break
    return Watch(before.rows + len(shares), wealth, peak, alarms)


def _divergence(q: float, p: float) -> float:
    """Kullback-Leibler divergence of Bernoulli(q) from Bernoulli(p), in nats."""
    return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))
