"""Percentiles with known answers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.serving.latencies import latencies


def test_percentiles_are_the_nearest_ranks_in_milliseconds() -> None:
    found = latencies([number / 1000 for number in range(1000, 0, -1)])
    assert found is not None
    assert found.count == 1000
    shown = (found.p50_ms, found.p90_ms, found.p99_ms, found.p999_ms, found.max_ms)
    assert shown == pytest.approx((500, 900, 990, 999, 1000))


def test_of_few_the_99th_percentile_is_the_worst() -> None:
    found = latencies([0.001, 0.002, 0.5])
    assert found is not None
    assert found.p50_ms == pytest.approx(2)
    assert found.p99_ms == pytest.approx(500)


def test_nothing_has_no_percentiles() -> None:
    assert latencies([]) is None


@pytest.mark.parametrize("wrong", [math.nan, -0.001])
def test_latencies_that_cannot_be_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="negative or NaN"):
        latencies([0.1, wrong, 0.2])


@given(st.lists(st.floats(0, 10), min_size=1, max_size=300))
def test_every_percentile_is_a_latency_that_occurred(seconds: list[float]) -> None:
    found = latencies(seconds)
    assert found is not None
    occurred = {value * 1e3 for value in seconds}
    assert {found.p50_ms, found.p90_ms, found.p99_ms, found.p999_ms, found.max_ms} <= occurred
    assert found.p50_ms <= found.p90_ms <= found.p99_ms <= found.p999_ms <= found.max_ms
    # At least 99 of 100 are within it, and it is the least such latency.
    within = sum(value * 1e3 <= found.p99_ms for value in seconds)
    below = sum(value * 1e3 < found.p99_ms for value in seconds)
    assert below * 100 < 99 * len(seconds) <= within * 100
