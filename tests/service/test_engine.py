"""The engine over real stages: answers, failures, cancellation, refusals, rows in the shadow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from multi_exit.bundle import Bundle
from multi_exit.offline import classify_texts, every_exit
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
from service.shadow_sample import ShadowOutcome, ShadowRow, ShadowSample
from service.worker import Worker

FULL = Policy.constant(0.0, 3)
QUICK = Policy.constant(0.1, 3)
Script = Callable[[Engine, Metrics], Coroutine[Any, Any, None]]


class Shadow:
    """Draws every row, and keeps what becomes of it."""

    def __init__(self, *, max_rows: int = 1000, share: float = 1.0) -> None:
        self.rows: list[ShadowRow] = []
        self.outcomes: list[ShadowOutcome] = []
        self.sample = ShadowSample(
            share=share,
            max_rows=max_rows,
            rng=np.random.default_rng(11),
            measured=self.rows.append,
            counted=self.outcomes.append,
        )


def _run(
    bundle: Bundle,
    script: Script,
    *,
    waiting_tokens: int = 10_000,
    rows: int = 4,
    shadow: Shadow | None = None,
) -> None:
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
            shadow=None if shadow is None else shadow.sample,
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
            engine.admission.refuse_overload(3)
        engine.admission.refuse_overload(2)
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


def _many(bundle: Bundle) -> list[EncodedText]:
    """Texts of two lengths; quick ones and slow ones."""
    return _encode(bundle, *(f"w{n} w{n + 3}" + f" w{2 * n}" * (n % 3) for n in range(29)))


def _what_is_answered(
    bundle: Bundle, shadow: Shadow | None
) -> tuple[list[tuple[int, float, list[float]]], Metrics]:
    answers: list[tuple[int, float, list[float]]] = []
    kept: list[Metrics] = []

    async def script(engine: Engine, metrics: Metrics) -> None:
        for policy in (QUICK, FULL.capped(1)):
            for outcome in await engine.submit(_many(bundle), policy, explain=False).outcomes:
                assert isinstance(outcome, RowAnswer)
                probabilities = outcome.probabilities.tolist()
                answers.append((outcome.exit_index, outcome.entropy, probabilities))
        await _until_idle(engine)
        await _until(lambda: not engine._worker._rows)
        kept.append(metrics)

    _run(bundle, script, shadow=shadow)
    return answers, kept[0]


def test_answers_and_their_metrics_are_the_same_bit_for_bit_with_shadow_rows(
    tiny_bundle: Bundle,
) -> None:
    plain, plain_metrics = _what_is_answered(tiny_bundle, None)
    shadow = Shadow()
    watched, metrics = _what_is_answered(tiny_bundle, shadow)
    assert watched == plain
    for name in (
        f"{names.ANSWER_EXIT_LAYER}_sum",
        f"{names.ANSWER_EXIT_LAYER}_count",
        names.LAYERS_RUN,
        names.LAYERS_SAVED,
    ):
        value = metrics.registry.get_sample_value(name)
        assert value == plain_metrics.registry.get_sample_value(name) != 0
    # All layers that were saved were run after all, and counted apart.
    saved = metrics.registry.get_sample_value(names.LAYERS_SAVED)
    assert metrics.registry.get_sample_value(names.SHADOW_LAYERS_RUN) == saved
    assert plain_metrics.registry.get_sample_value(names.SHADOW_LAYERS_RUN) == 0


def test_every_row_drawn_tells_every_exit_in_the_order_of_admission(tiny_bundle: Bundle) -> None:
    # Whatever its policy: early, capped, or full depth anyway.
    shadow = Shadow()
    _what_is_answered(tiny_bundle, shadow)
    runner = StageRunner(tiny_bundle, provider="cpu", threads=1)
    expected = every_exit(runner, tiny_bundle.manifest, _many(tiny_bundle))
    assert shadow.outcomes == ["measured"] * 58
    assert [row.entropies for row in shadow.rows] == [
        tuple(row) for row in expected.entropy.tolist() * 2
    ]
    assert [row.labels for row in shadow.rows] == [
        tuple(row) for row in expected.labels.tolist() * 2
    ]


def test_shadow_rows_cost_at_most_their_share(tiny_bundle: Bundle) -> None:
    shadow = Shadow(share=0.1)
    _, metrics = _what_is_answered(tiny_bundle, shadow)
    drawn = len(shadow.outcomes)
    assert 0 < drawn < 20  # 5.8 on average
    layers = metrics.registry.get_sample_value(names.SHADOW_LAYERS_RUN)
    assert layers is not None
    assert layers <= drawn * (tiny_bundle.manifest.layers - 1)


def test_no_more_shadow_rows_than_allowed_are_open_at_a_time(tiny_bundle: Bundle) -> None:
    shadow = Shadow(max_rows=3)
    _what_is_answered(tiny_bundle, shadow)
    assert shadow.outcomes.count("dropped") == 58 - len(shadow.rows)
    assert 3 <= len(shadow.rows) <= 6  # the second request may find places taken


def test_rows_of_a_request_given_up_go_on_in_the_shadow_where_they_had_begun(
    slow_bundle: Bundle,
) -> None:
    shadow = Shadow()

    async def script(engine: Engine, metrics: Metrics) -> None:
        texts = _encode(slow_bundle, "w1 w2", "w3 w4", "w5 w6", "w7 w8")
        given_up = engine.submit(texts * 2, FULL, explain=False)  # two units
        await _until(lambda: engine.scheduler.rows_at(2) == 4)
        engine.abandon(given_up, ClientGone("gone"))
        with pytest.raises(ClientGone):
            await given_up.outcomes
        assert engine.scheduler.waiting_tokens == 0
        await _until_idle(engine)
        await _until(lambda: not engine._worker._rows)
        assert metrics.registry.get_sample_value(f"{names.ANSWER_EXIT_LAYER}_count") == 0

    _run(slow_bundle, script, shadow=shadow)
    assert len(shadow.rows) >= 4
    assert shadow.outcomes == ["measured"] * len(shadow.rows) + ["dropped"] * (8 - len(shadow.rows))


def test_shadow_rows_that_fail_are_counted_and_pass_the_others_on(tiny_bundle: Bundle) -> None:
    shadow = Shadow()

    async def script(engine: Engine, metrics: Metrics) -> None:
        texts = _encode(tiny_bundle, "w1 broken", "w1 explode", "w1 w2 w3 w4 w5 w6")
        for text in texts:
            await engine.submit([text], QUICK, explain=False).outcomes
        await _until_idle(engine)

    _run(tiny_bundle, script, shadow=shadow)
    assert shadow.outcomes == ["failed", "failed", "measured"]


@pytest.mark.parametrize("drain", [True, False], ids=["drained", "closed at once"])
def test_shadow_rows_under_way_are_dropped_when_the_service_stops(
    slow_bundle: Bundle, drain: bool
) -> None:
    shadow = Shadow()

    async def script(engine: Engine, metrics: Metrics) -> None:
        texts = _encode(slow_bundle, "w1 w2", "w3 w4", "w5 w6", "w7 w8")
        leave_at_once = Policy((1.0, 1.0, 0.0))
        await engine.submit(texts * 3, leave_at_once, explain=False).outcomes
        if not drain:  # while a shadow unit runs
            return
        engine.stop_shadow()
        assert shadow.outcomes == ["dropped"] * 12
        await engine.submit(texts, leave_at_once, explain=False).outcomes
        await _until_idle(engine)
        await _until(lambda: not engine._worker._rows)

    _run(slow_bundle, script, shadow=shadow)
    assert shadow.outcomes == ["dropped"] * 12
    assert shadow.rows == []


def test_what_waits_when_the_service_closes_fails_and_is_not_run(slow_bundle: Bundle) -> None:
    async def script(engine: Engine, metrics: Metrics) -> None:
        texts = _encode(slow_bundle, "w1 w2", "w3 w4", "w5 w6", "w7 w8")
        pending = engine.submit(texts * 3, FULL, explain=False)  # two units ordered, one waits
        await engine.close()
        with pytest.raises(NotReady, match="shutting down"):
            await pending.outcomes
        assert engine.scheduler.waiting_rows == 0

    _run(slow_bundle, script)
