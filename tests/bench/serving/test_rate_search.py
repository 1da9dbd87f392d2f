"""The search over rates against servers whose capacity is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.serving.rate_search import RateTrial, search_rate


def _server(capacity: float, tried: list[float] | None = None) -> Callable[[float], RateTrial]:
    """A server of one queue: latency grows without bound as the rate comes near its capacity."""

    def try_rate(rate: float) -> RateTrial:
        if tried is not None:
            tried.append(rate)
        if rate >= capacity:
            return RateTrial(rate=rate, p99_ms=10_000, errors=0)
        return RateTrial(rate=rate, p99_ms=10 / (1 - rate / capacity), errors=0)

    return try_rate


@given(st.floats(1, 5000), st.floats(0.1, 20_000))
def test_the_highest_rate_within_the_limit_is_found(capacity: float, start: float) -> None:
    # 10 / (1 - x) <= 50 up to x = 0.8.
    truth = 0.8 * capacity
    found = search_rate(_server(capacity), limit_ms=50, start=start, most_trials=60)
    assert found.best is not None
    assert truth / 1.05 <= found.best.rate <= truth * (1 + 1e-9)
    assert found.best in found.trials


def test_it_goes_on_from_a_start_that_is_too_high_and_too_low_in_few_trials() -> None:
    for start in (1.0, 64_000.0):
        tried: list[float] = []
        search_rate(_server(1000, tried), limit_ms=50, start=start)
        assert tried[0] == start
        assert len(tried) <= 16
        assert len(set(tried)) == len(tried)


def test_a_rate_with_an_error_does_not_count_however_fast_it_is() -> None:
    def try_rate(rate: float) -> RateTrial:
        return RateTrial(rate=rate, p99_ms=1, errors=int(rate > 100))

    found = search_rate(try_rate, limit_ms=50, start=10)
    assert found.best is not None
    assert 95 <= found.best.rate <= 100


def test_a_server_that_never_keeps_the_limit_has_no_best_rate_and_the_search_ends() -> None:
    found = search_rate(
        lambda rate: RateTrial(rate=rate, p99_ms=60, errors=0), limit_ms=50, start=8, most_trials=5
    )
    assert found.best is None
    assert [trial.rate for trial in found.trials] == [8, 4, 2, 1, 0.5]


def test_the_search_ends_where_a_rate_is_too_low_to_tell_anything() -> None:
    def try_rate(rate: float) -> RateTrial:
        return RateTrial(rate=rate, p99_ms=None if rate < 3 else 60, errors=0)

    found = search_rate(try_rate, limit_ms=50, start=8)
    assert found.best is None
    assert [trial.rate for trial in found.trials] == [8, 4, 2]


def test_a_trial_in_which_nothing_was_answered_keeps_no_limit() -> None:
    assert not RateTrial(rate=1, p99_ms=None, errors=0).keeps(50)
    assert RateTrial(rate=1, p99_ms=50, errors=0).keeps(50)


def test_a_start_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        search_rate(_server(1), limit_ms=50, start=0)
