"""How far requests slide: down while the wait is long, back when it is short, never swinging."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.sliding import Slide, Sliding

WAITS = st.floats(0, 1, allow_nan=False)
GAPS = st.floats(0.001, 5, allow_nan=False)


def _looks(slide: Slide, waits: list[float], *, every: float, start: float = 0.0) -> list[Slide]:
    states = []
    for number, wait in enumerate(waits):
        slide = slide.updated(wait, start + number * every)
        states.append(slide)
    return states


def test_it_slides_one_step_at_a_time_while_the_wait_is_long() -> None:
    states = _looks(Slide(steps=3, at_wait_seconds=0.1), [0.2] * 100, every=0.01)
    assert states[0].at == 1
    assert [state.at for state in states] == sorted(state.at for state in states)
    assert all(b.at - a.at <= 1 for a, b in pairwise(states))
    assert states[-1].at == 3


def test_it_is_back_at_the_default_seconds_after_the_wait_is_over() -> None:
    loaded = _looks(Slide(steps=3, at_wait_seconds=0.1), [0.2] * 100, every=0.01)[-1]
    states = _looks(loaded, [0.01] * 500, every=0.01, start=1.0)
    assert states[-1].at == 0
    assert states[50].at == 3, "half a second of calm is not enough"


def test_a_wait_between_the_two_limits_changes_nothing() -> None:
    loaded = _looks(Slide(steps=3, at_wait_seconds=0.1), [0.2] * 30, every=0.01)[-1]
    states = _looks(loaded, [0.06] * 5000, every=0.01, start=1.0)
    assert {state.at for state in states} == {loaded.at}


def test_the_first_request_after_a_long_silence_gets_the_default() -> None:
    loaded = _looks(Slide(steps=5, at_wait_seconds=0.1), [0.2] * 1000, every=0.01)[-1]
    assert loaded.at == 5
    assert loaded.updated(0.0, 3600.0).at == 0


@given(st.integers(0, 4), st.lists(st.tuples(WAITS, GAPS), max_size=80))
def test_it_stays_on_the_ladder_and_moves_at_most_as_fast_as_allowed(
    steps: int, looks: list[tuple[float, float]]
) -> None:
    sliding = Sliding(steps, at_wait_seconds=0.3)
    now, before, slid_at = 0.0, 0, float("-inf")
    for wait, gap in looks:
        now += gap
        at = sliding.look(wait, now)
        assert 0 <= at <= steps
        if at > before:
            assert at == before + 1
            assert wait >= 0.3
            assert now - slid_at >= 0.25
            slid_at = now
        if at < before:
            assert wait < 0.15
        before = at


@given(st.floats(0.2, 3.0), st.integers(1, 4))
def test_with_a_queue_that_answers_it_settles_without_swinging(load: float, steps: int) -> None:
    # A queue in which each step serves half as much again; load: as a multiple of the default's.
    slide, wait, now, moves = Slide(steps=steps, at_wait_seconds=0.1), 0.0, 0.0, []
    for _ in range(6000):
        now += 0.01
        after = slide.updated(wait, now)
        moves.append(after.at - slide.at)
        slide = after
        wait = max(0.0, wait + 0.01 * (load / 1.5**slide.at - 1.0))
    # The last 40 of 60 seconds. A queue that is hardly too long grows slowly after a step back, so
    # that the step down is not taken as its echo; then it takes three seconds there and back.
    assert sum(abs(move) for move in moves[2000:]) <= 2 * 40 / 3 + 2
