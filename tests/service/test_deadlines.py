"""Answers by a deadline: the prediction, and what a caller gets over a real port."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_exit.bundle import Bundle
from service import metric_names as names
from service.deadlines import ANSWER_SECONDS, StageTimes
from service.schemas import ClassifyAnswer
from tests.service.conftest import Serve


def test_before_anything_ran_a_stage_takes_its_share_of_full_depth() -> None:
    times = StageTimes(4, {16: 0.4, 32: 0.8})
    assert times.until_answer(2, 16) == pytest.approx(0.1 + ANSWER_SECONDS)
    assert times.until_answer(4, 32) == pytest.approx(0.2 + ANSWER_SECONDS)


@given(st.floats(0, 10), st.floats(0.001, 10))
def test_a_steady_queue_is_predicted_as_it_is(wait: float, run: float) -> None:
    times = StageTimes(3, {16: 0.3})
    for _ in range(200):
        times.saw(stage=2, bucket_tokens=16, wait_seconds=wait, run_seconds=run)
    assert times.until_answer(2, 16) == pytest.approx(wait + run + ANSWER_SECONDS, rel=1e-3)
    assert times.until_answer(3, 16) == pytest.approx(0.1 + ANSWER_SECONDS)


@given(st.lists(st.tuples(st.floats(-1, 5), st.floats(0, 5)), min_size=1))
def test_a_prediction_stays_between_what_was_seen(seen: list[tuple[float, float]]) -> None:
    times = StageTimes(2, {8: 0.2})
    for wait, run in seen:
        times.saw(stage=1, bucket_tokens=8, wait_seconds=wait, run_seconds=run)
    longest = max(0.0, *(wait for wait, _ in seen)) + max(0.1, *(run for _, run in seen))
    assert ANSWER_SECONDS <= times.until_answer(1, 8) <= longest + ANSWER_SECONDS + 1e-9


def _answer(running: Any, **body: Any) -> ClassifyAnswer:
    response = running.post(**body)
    assert response.status_code == 200, response.text
    return ClassifyAnswer.model_validate(response.json(), strict=True, extra="forbid")


def test_a_deadline_with_room_changes_nothing(tiny_bundle: Bundle, serve: Serve) -> None:
    texts = [f"w{number} w{number + 3}" for number in range(20)]
    with serve(tiny_bundle) as running:
        with_room = _answer(running, inputs=texts, threshold=0.2, deadline_ms=60_000)
        without = _answer(running, inputs=texts, threshold=0.2)
        for ours, theirs in zip(with_room.results, without.results, strict=True):
            assert ours.cut_short is None  # type: ignore[union-attr]
            assert ours.score == theirs.score  # type: ignore[union-attr]
            assert ours.exit_layer == theirs.exit_layer  # type: ignore[union-attr]


def test_a_tight_deadline_is_answered_at_the_last_exit_that_makes_it(
    slow_bundle: Bundle, serve: Serve
) -> None:
    # The second of three stages takes some tenths of a second.
    with serve(slow_bundle) as running:
        whole = _answer(running, inputs="w1 w2", threshold=0, explain=True)
        (everything,) = whole.results
        started = time.monotonic()
        answer = _answer(running, inputs="w1 w2", threshold=0, deadline_ms=60, explain=True)
        took = time.monotonic() - started
        (result,) = answer.results
        assert result.cut_short is True  # type: ignore[union-attr]
        assert result.exit_layer == 1  # type: ignore[union-attr]
        # The same answer as that exit gives on the way to full depth.
        assert result.explain == everything.explain[:1]  # type: ignore[union-attr, index]
        assert took < whole_time(everything)
        assert running.metric(names.CUT_SHORT) == 1
        # What was given up is not run on for ever, and the next request is answered.
        _answer(running, inputs="w3", threshold=0)
        assert running.served.readiness.require_engine().scheduler.waiting_tokens == 0


def whole_time(result: Any) -> float:
    """Seconds that full depth took, with room for the way there and back."""
    return float(result.compute_seconds + 0.2)


def test_a_text_that_reaches_no_exit_in_time_is_a_504(slow_bundle: Bundle, serve: Serve) -> None:
    with serve(slow_bundle, max_wait_seconds=600) as running:
        blocking = threading.Thread(
            target=lambda: running.post(inputs=["w1 w2 w3"] * 40, threshold=0)
        )
        blocking.start()
        time.sleep(0.1)  # stage 2 runs now, for longer than the deadline
        response = running.post(inputs="w1", deadline_ms=5)
        blocking.join()
        assert response.status_code == 504
        assert response.json()["type"] == "urn:patamar:problem:deadline_missed"


@pytest.mark.parametrize("deadline", [0, -1, "50", 1e9, True])
def test_a_deadline_that_makes_no_sense_is_refused(tiny: Any, deadline: Any) -> None:
    response = tiny.post(inputs="w1", deadline_ms=deadline)
    assert response.status_code == 422
    assert response.json()["field"] == "deadline_ms"


def test_texts_of_a_client_that_hung_up_are_counted_and_free_their_place(
    slow_bundle: Bundle, serve: Serve
) -> None:
    with serve(slow_bundle) as running:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{running.url}/classify",
                json={"inputs": ["w1", "w2"], "threshold": 0},
                timeout=0.1,
            )
        scheduler = running.served.readiness.require_engine().scheduler
        until = time.monotonic() + 20
        while scheduler.waiting_tokens and time.monotonic() < until:
            time.sleep(0.01)
        assert scheduler.waiting_tokens == 0
        assert running.metric(names.GIVEN_UP_ROWS) == 2
