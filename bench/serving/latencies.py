"""Latencies in short: a few percentiles of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Milliseconds. Percentiles are latencies that occurred, never between two of them."""

    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


def latencies(seconds: Sequence[float]) -> Latencies | None:
    """Percentiles by nearest rank: the least latency that so many per cent do not exceed.

    None where there is nothing to sum up. Raises ValueError for NaN or a negative latency.
    """
    if not seconds:
        return None
    milliseconds = np.sort(np.asarray(seconds, dtype=np.float64)) * 1e3
    if not milliseconds[0] >= 0 or np.isnan(milliseconds[-1]):
        raise ValueError("a latency is negative or NaN (a bug)")

    def percentile(thousandths: int) -> float:
        # In whole numbers: 0.999 * 1000 is a little more than 999.
        rank = -(-len(milliseconds) * thousandths // 1000)
        return float(milliseconds[rank - 1])

    return Latencies(
        count=len(milliseconds),
        p50_ms=percentile(500),
        p90_ms=percentile(900),
        p99_ms=percentile(990),
        p999_ms=percentile(999),
        max_ms=float(milliseconds[-1]),
    )


def shown(found: Latencies | None) -> str:
    """For tables: p50 / p99."""
    return "none" if found is None else f"{found.p50_ms:.2f} / {found.p99_ms:.2f}"
