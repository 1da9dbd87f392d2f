"""The worker's thread: states by row, failures that stay with their rows, an end that is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
import pytest

from multi_exit.bundle import Bundle
from multi_exit.offline import every_exit
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import EncodedText, TextInput
from service.scheduler import StageJob
from service.worker import Release, Report, RunStage, StageDone, StageRaised, Worker, WorkerEnded

BUCKET = 8


class Driver:
    """Gives a worker orders and waits for its reports."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.reports: asyncio.Queue[Report] = asyncio.Queue()
        worker.start(asyncio.get_running_loop(), self.reports.put_nowait)

    async def run(
        self, stage: int, rows: Sequence[int], texts: Sequence[EncodedText] = ()
    ) -> Report:
        job = StageJob(stage=stage, bucket_tokens=BUCKET, row_ids=tuple(rows))
        self.worker.order(RunStage(job=job, texts=texts))
        return await asyncio.wait_for(self.reports.get(), 10)

    async def done(
        self, stage: int, rows: Sequence[int], texts: Sequence[EncodedText] = ()
    ) -> StageDone:
        report = await self.run(stage, rows, texts)
        assert isinstance(report, StageDone)
        return report


@pytest.fixture(scope="module")
def runner(tiny_bundle: Bundle) -> StageRunner:
    return StageRunner(tiny_bundle, provider="cpu", threads=1)


@pytest.fixture
def drive(runner: StageRunner) -> Callable[[Callable[[Driver], Coroutine[Any, Any, None]]], None]:
    def run(script: Callable[[Driver], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            driver = Driver(Worker(runner=runner, pad_token_id=0))
            try:
                await script(driver)
            finally:
                await asyncio.to_thread(driver.worker.stop)

        asyncio.run(main())

    return run


@pytest.fixture
def texts(tiny_bundle: Bundle) -> list[EncodedText]:
    encoder = tiny_bundle.text_encoder()
    words = ("w1 w2 w3", "w9 w8 w7 w6", "w20 w21 w22 w23", "w30 w4 w50")
    return [encoder.encode(TextInput(text)) for text in words]


def test_rows_of_several_groups_continue_together_as_they_would_alone(
    drive: Any, runner: StageRunner, tiny_bundle: Bundle, texts: list[EncodedText]
) -> None:
    expected = every_exit(runner, tiny_bundle.manifest, texts)

    async def script(driver: Driver) -> None:
        await driver.done(1, [10, 11], texts[:2])
        await driver.done(1, [12, 13], texts[2:])
        second = await driver.done(2, [13, 10, 12])  # two groups, out of order, one row left
        assert (second.logits == expected.logits[[3, 0, 2], 1]).all()
        third = await driver.done(3, [12, 13])  # part of one group
        assert (third.logits == expected.logits[[2, 3], 2]).all()
        late = await driver.done(2, [11])  # its group outlived the others' leaving
        assert (late.logits == expected.logits[[1], 1]).all()
        assert third.seconds > 0

    drive(script)


def test_states_are_forgotten_at_the_last_stage_on_release_and_with_the_next_order(
    drive: Any, texts: list[EncodedText]
) -> None:
    async def script(driver: Driver) -> None:
        await driver.done(1, [0, 1, 2, 3], texts)
        driver.worker.order(Release(row_ids=(0, 99)))
        job = StageJob(stage=2, bucket_tokens=BUCKET, row_ids=(2, 3))
        driver.worker.order(RunStage(job=job, release=(1,)))
        await driver.reports.get()
        await driver.done(3, [2])
        assert set(driver.worker._rows) == {3}

    drive(script)


def test_a_stage_that_raises_fails_its_own_rows_only(
    drive: Any, tiny_bundle: Bundle, texts: list[EncodedText]
) -> None:
    explodes = tiny_bundle.text_encoder().encode(TextInput("w1 explode"))

    async def script(driver: Driver) -> None:
        await driver.done(1, [0], texts[:1])
        report = await driver.run(1, [1, 2], [texts[1], explodes])
        assert isinstance(report, StageRaised)
        assert report.job.row_ids == (1, 2)
        assert np.isfinite((await driver.done(2, [0])).logits).all()
        assert isinstance(await driver.run(2, [77]), StageRaised)  # a row it never saw

    drive(script)


def test_one_row_that_is_not_finite_is_marked_and_its_neighbour_is_not(
    drive: Any, tiny_bundle: Bundle, texts: list[EncodedText]
) -> None:
    broken = tiny_bundle.text_encoder().encode(TextInput("w1 broken"))

    async def script(driver: Driver) -> None:
        done = await driver.done(1, [0, 1], [broken, texts[0]])
        assert done.finite.tolist() == [False, True]

    drive(script)


def test_the_end_of_the_thread_is_reported(runner: StageRunner) -> None:
    async def main() -> None:
        driver = Driver(Worker(runner=runner, pad_token_id=0))
        driver.worker.stop()
        assert await driver.reports.get() == WorkerEnded(wanted=True)
        broken = Driver(Worker(runner=runner, pad_token_id=0))
        broken.worker.order("nonsense")  # type: ignore[arg-type]
        assert await broken.reports.get() == WorkerEnded(wanted=False)

    asyncio.run(main())
