"""Takes encoded texts through the stages and answers each at its exit.

Owner: the event loop. Requests, futures, the scheduler and these tables are touched by nothing
else. Orders go to the worker by its queue; its reports come back on the loop, in `_report`.
Futures are only set where nobody has cancelled them: a cancelled one would raise.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from multi_exit.batch import bucket_of
from multi_exit.confidence import probabilities
from multi_exit.policy import Policy
from multi_exit.text_encoder import EncodedText
from service.answers import ExitPassed, RowAnswer, RowOutcome
from service.errors import (
    NotFinite,
    NotReady,
    Overloaded,
    ServiceError,
    StageFailed,
    TooManyTokens,
)
from service.metrics import Metrics
from service.scheduler import NewRow, Scheduler, SchedulerLimits, StageJob
from service.worker import Release, Report, RunStage, StageDone, StageRaised, Worker, WorkerEnded

# A text may be passed by later, shorter ones for this many times its own full-depth time: short
# texts then hardly notice long ones, and a long one still waits in proportion to its own work.
_PATIENCE = 10.0
_LONGEST_RETRY_SECONDS = 30


@dataclass(eq=False, slots=True)
class Pending:
    """A request under way. outcomes: resolves to what its rows came to, in order."""

    outcomes: asyncio.Future[tuple[RowOutcome, ...]]
    row_ids: range
    _found: dict[int, RowOutcome] = field(default_factory=dict)
    closed: bool = False

    def settle(self, row_id: int, outcome: RowOutcome) -> None:
        self._found[row_id] = outcome
        if len(self._found) == len(self.row_ids):
            self.closed = True
            if not self.outcomes.done():
                self.outcomes.set_result(tuple(self._found[row_id] for row_id in self.row_ids))

    def fail(self, error: ServiceError) -> None:
        self.closed = True
        if not self.outcomes.done():
            self.outcomes.set_exception(error)


@dataclass(eq=False, slots=True)
class _Row:
    pending: Pending
    text: EncodedText
    policy: Policy
    admitted_at: float
    passed: list[ExitPassed] | None  # None where nobody asked
    compute_seconds: float = 0.0


class Engine:
    """Continuous batching by layer over one worker. Make it on the event loop that will use it.

    full_depth_seconds: by bucket, what one text alone takes through all stages.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        exits: tuple[int, ...],
        limits: SchedulerLimits,
        full_depth_seconds: Mapping[int, float],
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._worker = worker
        self._exits = exits
        self._limits = limits
        self._buckets = tuple(sorted(full_depth_seconds))
        self._seconds_a_token = max(
            seconds / bucket for bucket, seconds in full_depth_seconds.items()
        )
        self._metrics = metrics
        self._clock = clock
        self._scheduler = Scheduler(
            stages=len(exits),
            limits=limits,
            patience_seconds={
                bucket: _PATIENCE * seconds for bucket, seconds in full_depth_seconds.items()
            },
        )
        self._row_ids = count()
        self._rows: dict[int, _Row] = {}
        self._to_release: list[int] = []
        self._jobs_in_flight = 0
        self._refusal: str | None = None  # why nothing is accepted any more
        metrics.watch(
            rows_at=self._scheduler.rows_at, waiting_tokens=lambda: self._scheduler.waiting_tokens
        )
        worker.start(asyncio.get_running_loop(), self._report)

    @property
    def refusal(self) -> str | None:
        """Why no request is taken any more; None while all is well."""
        return self._refusal

    @property
    def scheduler(self) -> Scheduler:
        """To look at; only the engine changes it."""
        return self._scheduler

    def refuse_overload(self, texts: int) -> None:
        """Raises Overloaded where texts cannot fit even if short, before they cost anything."""
        if not self._scheduler.has_room(texts * self._buckets[0]):
            raise self._overloaded()

    def submit(self, texts: Sequence[EncodedText], policy: Policy, *, explain: bool) -> Pending:
        """Admits all texts of a request, at least one, or none.

        Raises NotReady, Overloaded, or TooManyTokens where the request could never fit.
        """
        if self._refusal is not None:
            raise NotReady(self._refusal)
        row_ids = [next(self._row_ids) for _ in texts]
        rows = [
            NewRow(row_id=row_id, bucket_tokens=bucket_of(len(text), self._buckets))
            for row_id, text in zip(row_ids, texts, strict=True)
        ]
        now = self._clock()
        if not self._scheduler.admit(rows, now):
            raise self._too_much(sum(row.bucket_tokens for row in rows))
        pending = Pending(
            outcomes=asyncio.get_running_loop().create_future(),
            row_ids=range(row_ids[0], row_ids[-1] + 1),
        )
        for row_id, text in zip(row_ids, texts, strict=True):
            self._rows[row_id] = _Row(pending, text, policy, now, [] if explain else None)
        self._dispatch()
        return pending

    def abandon(self, pending: Pending, error: ServiceError) -> None:
        """Gives a request up: its waiting rows go at once, running ones when their stage ends."""
        if pending.closed:
            return
        pending.fail(error)
        self._to_release.extend(self._scheduler.cancel(pending.row_ids))
        for row_id in pending.row_ids:
            self._rows.pop(row_id, None)
        self._send_release()

    async def close(self) -> None:
        """Ends the worker; what is still under way fails as not ready."""
        self._refuse("the service is shutting down")
        await asyncio.to_thread(self._worker.stop)

    def _report(self, report: Report) -> None:
        if isinstance(report, WorkerEnded):
            if not report.wanted:
                self._refuse("the worker ended; this instance must be restarted")
            return
        self._jobs_in_flight -= 1
        if isinstance(report, StageRaised):
            self._stage_raised(report)
        else:
            self._stage_done(report)

    def _stage_done(self, done: StageDone) -> None:
        job = done.job
        self._metrics.stage_ran(stage=job.stage, rows=len(job.row_ids), seconds=done.seconds)
        leaving, broken = self._read(done)
        gone = [job.row_ids[position] for position in (*leaving, *broken)]
        self._to_release.extend(gone)
        self._to_release.extend(self._scheduler.stage_done(job, frozenset(gone)))
        # Before anything is answered: the worker must not wait while we write.
        self._dispatch()
        if leaving:
            self._answer(done, leaving)
        if broken:
            self._metrics.non_finite(len(broken))
            error = NotFinite("The model gave NaN or infinity for this text; report the bundle.")
            for position in broken:
                self._settle(job.row_ids[position], error)

    def _read(self, done: StageDone) -> tuple[list[int], list[int]]:
        """Positions of the rows that leave here, and of those that are not finite."""
        exit_index = done.job.stage - 1
        entropies, finite = done.entropy.tolist(), done.finite.tolist()
        leaving: list[int] = []
        broken: list[int] = []
        for position, row_id in enumerate(done.job.row_ids):
            row = self._rows.get(row_id)
            if row is None:  # cancelled while it ran; the scheduler drops it
                continue
            row.compute_seconds += done.seconds
            if not finite[position]:
                broken.append(position)
                continue
            if row.passed is not None:
                row.passed.append(
                    ExitPassed(
                        exit_index=exit_index,
                        entropy=entropies[position],
                        logits=done.logits[position],
                    )
                )
            if row.policy.leaves(exit_index, entropies[position]):
                leaving.append(position)
        return leaving, broken

    def _answer(self, done: StageDone, leaving: Sequence[int]) -> None:
        exit_index = done.job.stage - 1
        chances = probabilities(done.logits[np.asarray(leaving)])
        now = self._clock()
        for row_chances, position in zip(chances, leaving, strict=True):
            row_id = done.job.row_ids[position]
            row = self._rows[row_id]
            wait_seconds = max(0.0, now - row.admitted_at - row.compute_seconds)
            self._metrics.answered(exit_layer=self._exits[exit_index], wait_seconds=wait_seconds)
            answer = RowAnswer(
                exit_index=exit_index,
                entropy=float(done.entropy[position]),
                probabilities=row_chances,
                passed=tuple(row.passed or ()),
                wait_seconds=wait_seconds,
                compute_seconds=row.compute_seconds,
            )
            self._settle(row_id, answer)

    def _stage_raised(self, raised: StageRaised) -> None:
        self._scheduler.stage_failed(raised.job)
        self._dispatch()
        error = StageFailed("A stage of the model failed for this text; try again.")
        for row_id in raised.job.row_ids:
            if row_id in self._rows:
                self._settle(row_id, error)

    def _settle(self, row_id: int, outcome: RowOutcome) -> None:
        self._rows.pop(row_id).pending.settle(row_id, outcome)

    def _dispatch(self) -> None:
        # One job runs; a second waits for it only where it is full already, so that the worker
        # never idles under load and small batches can still grow.
        while self._jobs_in_flight < 2:
            job = self._scheduler.next_unit(only_full=self._jobs_in_flight > 0)
            if job is None:
                break
            self._jobs_in_flight += 1
            release, self._to_release = tuple(self._to_release), []
            self._worker.order(RunStage(job=job, texts=self._texts(job), release=release))
        self._send_release()

    def _texts(self, job: StageJob) -> Sequence[EncodedText]:
        return [self._rows[row_id].text for row_id in job.row_ids] if job.stage == 1 else ()

    def _send_release(self) -> None:
        if self._to_release:
            self._worker.order(Release(row_ids=tuple(self._to_release)))
            self._to_release = []

    def _refuse(self, reason: str) -> None:
        self._refusal = reason
        for pending in {id(row.pending): row.pending for row in self._rows.values()}.values():
            pending.fail(NotReady(reason))
        self._rows.clear()

    def _too_much(self, tokens: int) -> ServiceError:
        limit = self._limits.max_waiting_tokens
        if tokens > limit:
            return TooManyTokens(
                "The request alone holds more tokens than may wait; split it.",
                limit=limit,
                received=tokens,
                setting="max_waiting_tokens",
            )
        return self._overloaded()

    def _overloaded(self) -> Overloaded:
        expected = self._scheduler.waiting_tokens * self._seconds_a_token
        return Overloaded(
            retry_after_seconds=min(_LONGEST_RETRY_SECONDS, max(1, math.ceil(expected))),
            limit=self._limits.max_waiting_tokens,
            setting="max_waiting_tokens",
        )
