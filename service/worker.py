"""Runs stages on one device.

Owner: the worker thread. Hidden states never leave this file.
In: RunStage and Release, one queue, from the event loop. Out: StageDone, StageRaised and
WorkerEnded, by call_soon_threadsafe.
Never: touches a future, awaits, reads a clock for decisions.
If a stage raises, its rows fail; if the thread ends, the engine hears of it and /readyz says 503.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from multi_exit.batch import pad_batch
from multi_exit.runner import RowState, StageResult, StageRunner
from multi_exit.text_encoder import EncodedText
from service.scheduler import StageJob

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStage:
    """Order to run a job. texts: those of its rows, in order, for the first stage only."""

    job: StageJob
    texts: Sequence[EncodedText] = ()
    release: tuple[int, ...] = ()  # rows that left or were cancelled since the last order


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Order to forget rows, where no job follows that could carry it."""

    row_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageDone:
    """What a job gave. logits [rows, K] and entropy [rows], float32; finite [rows], bool."""

    job: StageJob
    logits: NDArray[np.float32]
    entropy: NDArray[np.float32]
    finite: NDArray[np.bool_]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRaised:
    """A job's stage raised; the worker has forgotten its rows."""

    job: StageJob


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnded:
    """The thread runs no more. wanted: because it was asked to."""

    wanted: bool


Order = RunStage | Release | None  # None: end
Report = StageDone | StageRaised | WorkerEnded


@dataclass(slots=True, eq=False)
class Worker:
    """One thread that drives one StageRunner. Made and asked by the event loop."""

    runner: StageRunner
    pad_token_id: int
    _orders: SimpleQueue[Order] = field(default_factory=SimpleQueue)
    _thread: threading.Thread | None = None
    # Owned by the thread: where each row's hidden state lies, as a row number of a group.
    _rows: dict[int, tuple[RowState, int]] = field(default_factory=dict)

    def start(self, loop: asyncio.AbstractEventLoop, deliver: Callable[[Report], object]) -> None:
        """Starts the thread; `deliver` is called on the loop for every report."""
        self._thread = threading.Thread(
            target=self._main, args=(loop, deliver), name="patamar-worker", daemon=True
        )
        self._thread.start()

    def order(self, order: RunStage | Release) -> None:
        self._orders.put(order)

    def stop(self) -> None:
        """Ends the thread after the orders given so far, and waits for it."""
        self._orders.put(None)
        if self._thread is not None:
            self._thread.join()

    def _main(self, loop: asyncio.AbstractEventLoop, deliver: Callable[[Report], object]) -> None:
        wanted = False
        try:
            while (order := self._orders.get()) is not None:
                if isinstance(order, Release):
                    self._forget(order.row_ids)
                else:
                    self._forget(order.release)
                    report = self._run(order)
                    del order  # its texts need not outlive it until the next order comes
                    loop.call_soon_threadsafe(deliver, report)
            wanted = True
        except BaseException:
            logger.exception("the worker ended; no text can be answered any more")
        finally:
            self._rows.clear()
            # The loop is closed only where the whole process is going down.
            if not loop.is_closed():
                loop.call_soon_threadsafe(deliver, WorkerEnded(wanted=wanted))

    def _run(self, order: RunStage) -> Report:
        job = order.job
        started = time.perf_counter()
        try:
            result = self._compute(order)
        except Exception:
            # onnxruntime's errors share no parent but Exception. Stage and bucket only: a text
            # must not reach the log.
            logger.exception(
                "stage %d failed for %d rows of %d tokens",
                job.stage,
                len(job.row_ids),
                job.bucket_tokens,
            )
            self._forget(job.row_ids)
            return StageRaised(job=job)
        seconds = time.perf_counter() - started
        finite = np.isfinite(result.logits).all(axis=1) & np.isfinite(result.entropy)
        return StageDone(
            job=job,
            logits=result.logits,
            entropy=result.entropy,
            finite=finite,
            seconds=seconds,
        )

    def _compute(self, order: RunStage) -> StageResult:
        job = order.job
        if job.stage == 1:
            tokens = pad_batch(order.texts, job.bucket_tokens, self.pad_token_id)
            result = self.runner.start(tokens)
        else:
            state, keep = self._gather(job.row_ids)
            result = self.runner.advance(job.stage, state, keep)
        if result.state is None:
            self._forget(job.row_ids)
        else:
            self._rows.update(
                {row_id: (result.state, number) for number, row_id in enumerate(job.row_ids)}
            )
        return result

    def _gather(self, row_ids: Sequence[int]) -> tuple[RowState, NDArray[np.int64]]:
        """The rows' states as one group, and their row numbers in it.

        Rows of one group are picked inside the graph; groups are joined only where there are
        several, since that copies.
        """
        places = [self._rows[row_id] for row_id in row_ids]
        groups: list[RowState] = []
        offsets: dict[int, int] = {}  # by identity of the group
        rows = 0
        for state, _ in places:
            if id(state) not in offsets:
                offsets[id(state)] = rows
                groups.append(state)
                rows += state.rows
        keep = np.array([offsets[id(state)] + number for state, number in places], dtype=np.int64)
        return (groups[0] if len(groups) == 1 else self.runner.merge(groups)), keep

    def _forget(self, row_ids: Sequence[int]) -> None:
        """Rows that never got this far are passed over."""
        for row_id in row_ids:
            self._rows.pop(row_id, None)
