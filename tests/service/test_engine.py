"""The engine over real stages: answers, failures, cancellation, refusals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from multi_exit.bundle import Bundle
from multi_exit.offline import classify_texts
from multi_exit.policy import Policy
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import EncodedText, TextInput
from service import metric_names as names
from service.answers import RowAnswer
from service.engine import Engine
from service.errors import (
    ClientGone,
    NotFinite,
    NotReady,
    Overloaded,
    StageFailed,
    TooManyTokens,
)
from service.metrics import Metrics
from service.scheduler import SchedulerLimits
from service.worker import Worker

FULL = Policy.constant(0.0, 3)
QUICK = Policy.constant(0.1, 3)
Script = Callable[[Engine, Metrics], Coroutine[Any, Any, None]]


def _run(bundle: Bundle, script: Script, *, waiting_tokens: int = 10_000, rows: int = 4) -> None:
    """Runs a script against an engine. Long texts are as patient here as their length says."""

    async def main() -> None:
        unseen: list[dict[str, Any]] = []  # errors in callbacks, which asyncio only logs
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        metrics = Metrics(CollectorRegistry(), layers=4, stages=3)
        engine = Engine(
            Worker(runner=StageRunner(bundle, provider="cpu", threads=1), pad_token_id=0),
            exits=bundle.manifest.exits,
            limits=SchedulerLimits(
                max_batch_rows=rows, max_batch_tokens=128, max_waiting_tokens=waiting_tokens
            ),
            full_depth_seconds={bucket: bucket / 100 for bucket in bundle.manifest.length_buckets},
            metrics=metrics,
            clock=time.monotonic,
        )
        try:
            await script(engine, metrics)
        finally:
            await engine.close()
        assert not unseen

    asyncio.run(main())


def _encode(bundle: Bundle, *texts: str) -> list[EncodedText]:
    encoder = bundle.text_encoder()
    return [encoder.encode(TextInput(text)) for text in texts]


async def _until(holds: Callable[[], bool]) -> None:
    """Polls: what is waited for happens on another thread, or leaves no trace to wait for."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def _until_idle(engine: Engine) -> None:
    await _until(lambda: engine.scheduler.waiting_rows + engine.scheduler.running_rows == 0)


def test_answers_and_exits_are_those_of_offline_use_in_the_order_asked(
    tiny_bundle: Bundle,
) -> None:
    texts = _encode(tiny_bundle, *(f"w{n} w{n + 3}" + f" w{2 * n}" * (n % 3) for n in range(29)))
    runner = StageRunner(tiny_bundle, provider="cpu", threads=1)
    expected = classify_texts(runner, tiny_bundle.manifest, texts, QUICK)

    async def script(engine: Engine, metrics: Metrics) -> None:
        outcomes = await engine.submit(texts, QUICK, explain=True).outcomes
        layers = set()
        for outcome, answer in zip(outcomes, expected, strict=True):
            assert isinstance(outcome, RowAnswer)
            layer = tiny_bundle.manifest.exits[outcome.exit_index]
            layers.add(layer)
            assert (layer, outcome.entropy) == (answer.exit_layer, answer.entropy)
            assert outcome.probabilities.max() == answer.score
            assert len(outcome.passed) == outcome.exit_index + 1
            assert outcome.compute_seconds > 0
        assert layers == set(tiny_bundle.manifest.exits)
        value = metrics.registry.get_sample_value
        assert value(f"{names.ANSWER_EXIT_LAYER}_count") == len(texts)
        assert value(names.WAITING_TOKENS) == 0
        assert value(f"{names.STAGE_ROWS}_sum") == sum(
            tiny_bundle.manifest.exits.index(answer.exit_layer) + 1 for answer in expected
        )

    _run(tiny_bundle, script)


def test_a_capped_policy_runs_no_deeper(tiny_bundle: Bundle) -> None:
    async def script(engine: Engine, metrics: Metrics) -> None:
        (outcome,) = await engine.submit(
            _encode(tiny_bundle, "w1"), FULL.capped(1), explain=False
        ).outcomes
        assert isinstance(outcome, RowAnswer)
        assert outcome.exit_index == 1
        assert (
            metrics.registry.get_sample_value(f"{names.STAGE_SECONDS}_count", {"stage": "3"}) == 0
        )

    _run(tiny_bundle, script)


def test_a_row_that_is_not_finite_fails_alone_and_is_counted(tiny_bundle: Bundle) -> None:
    async def script(engine: Engine, metrics: Metrics) -> None:
        texts = _encode(tiny_bundle, "w1 w2", "w1 broken", "w3 w4")
        outcomes = await engine.submit(texts, FULL, explain=False).outcomes
        assert [type(outcome) for outcome in outcomes] == [RowAnswer, NotFinite, RowAnswer]
        assert metrics.registry.get_sample_value(names.NON_FINITE_ROWS) == 1

    _run(tiny_bundle, script)


def test_a_stage_that_raises_fails_its_micro_batch_and_the_next_one_runs(
    tiny_bundle: Bundle,
) -> None:
    async def script(engine: Engine, metrics: Metrics) -> None:
        texts = _encode(tiny_bundle, "w1 explode", "w1 w2 w3 w4 w5 w6")  # two buckets
        outcomes = await engine.submit(texts, FULL, explain=False).outcomes
        assert [type(outcome) for outcome in outcomes] == [StageFailed, RowAnswer]
        assert engine.scheduler.waiting_tokens == 0

    _run(tiny_bundle, script)


def test_an_abandoned_request_frees_its_rows_and_nobody_else_s(slow_bundle: Bundle) -> None:
    async def script(engine: Engine, metrics: Metrics) -> None:
        texts = _encode(slow_bundle, "w1 w2", "w3 w4", "w5 w6", "w7 w8")
        given_up = engine.submit(texts * 3, FULL, explain=False)
        kept = engine.submit(texts[:1], FULL, explain=False)
        await asyncio.sleep(0.1)  # some rows are in the slow stage by now
        engine.abandon(given_up, ClientGone("gone"))
        with pytest.raises(ClientGone):
            await given_up.outcomes
        engine.abandon(given_up, ClientGone("twice is once"))
        (outcome,) = await kept.outcomes
        assert isinstance(outcome, RowAnswer)
        await _until_idle(engine)
        assert engine.scheduler.waiting_tokens == 0
        # Rows that ran on would have been answered.
        assert metrics.registry.get_sample_value(f"{names.ANSWER_EXIT_LAYER}_count") == 1
        await _until(lambda: not engine._worker._rows)

    _run(slow_bundle, script)


def test_a_row_given_up_between_two_stages_is_forgotten_by_the_worker_too(
    slow_bundle: Bundle,
) -> None:
    async def script(engine: Engine, metrics: Metrics) -> None:
        long = engine.submit(_encode(slow_bundle, "w1 " * 30), FULL, explain=False)
        short = engine.submit(_encode(slow_bundle, "w1"), FULL, explain=False)
        # The short text overtakes after the long one's first stage, and runs the slow second.
        await _until(lambda: engine.scheduler.rows_at(2) == 2)
        engine.abandon(long, ClientGone("gone"))
        with pytest.raises(ClientGone):
            await long.outcomes
        assert engine.scheduler.rows_at(2) == 1
        await short.outcomes
        await _until(lambda: not engine._worker._rows)

    _run(slow_bundle, script)


def test_a_cancelled_future_does_not_stop_the_engine(tiny_bundle: Bundle) -> None:
    async def script(engine: Engine, metrics: Metrics) -> None:
        texts = _encode(tiny_bundle, "w1 w2")
        engine.submit(texts, FULL, explain=False).outcomes.cancel()
        await _until_idle(engine)
        (outcome,) = await engine.submit(texts, FULL, explain=False).outcomes
        assert isinstance(outcome, RowAnswer)

    _run(tiny_bundle, script)


def test_admission_is_all_or_nothing_and_says_when_to_come_back(slow_bundle: Bundle) -> None:
    async def script(engine: Engine, metrics: Metrics) -> None:
        text = _encode(slow_bundle, "w1 w2")  # bucket 4
        waiting = engine.submit(text * 6, FULL, explain=False)
        with pytest.raises(Overloaded) as caught:
            engine.submit(text * 3, FULL, explain=False)
        assert int(caught.value.headers["Retry-After"]) >= 1
        with pytest.raises(Overloaded):
            engine.refuse_overload(3)
        engine.refuse_overload(2)
        assert engine.scheduler.waiting_tokens == 24
        engine.abandon(waiting, ClientGone("gone"))
        with pytest.raises(ClientGone):
            await waiting.outcomes

    _run(slow_bundle, script, waiting_tokens=32)


def test_a_request_that_could_never_fit_is_not_told_to_come_back(tiny_bundle: Bundle) -> None:
    async def script(engine: Engine, metrics: Metrics) -> None:
        with pytest.raises(TooManyTokens) as caught:
            engine.submit(_encode(tiny_bundle, *["w1 w2"] * 9), FULL, explain=False)
        assert caught.value.members["limit"] == 32
        assert caught.value.members["received"] == 36

    _run(tiny_bundle, script, waiting_tokens=32)


def test_what_is_under_way_when_the_worker_ends_fails_and_nothing_more_is_taken(
    slow_bundle: Bundle,
) -> None:
    async def script(engine: Engine, metrics: Metrics) -> None:
        pending = engine.submit(_encode(slow_bundle, "w1"), FULL, explain=False)
        engine._worker.order("nonsense")  # type: ignore[arg-type]
        with pytest.raises(NotReady, match="worker ended"):
            await asyncio.wait_for(pending.outcomes, 10)
        assert engine.refusal is not None
        with pytest.raises(NotReady):
            engine.submit(_encode(slow_bundle, "w1"), FULL, explain=False)

    _run(slow_bundle, script)
