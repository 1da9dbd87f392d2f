"""Takes encoded texts through the stages and answers each at its exit.

Owner: the event loop. Requests, futures, the scheduler and these tables are touched by nothing
else. Orders go to the worker by its queue; its reports come back on the loop, in `_report`.
Futures are only set where nobody has cancelled them: a cancelled one would raise.

A row that was drawn for the shadow and leaves before full depth is answered as any other, and runs
on as a shadow row: it is then in the sample (service/shadow_sample.py) and not in these tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from multi_exit.batch import bucket_of
from multi_exit.confidence import probabilities
from multi_exit.policy import Policy
from multi_exit.text_encoder import EncodedText
from service.admission import Admission
from service.answers import ExitPassed, RowAnswer, RowOutcome
from service.deadlines import ANSWER_SECONDS, StageTimes
from service.errors import (
    DeadlineMissed,
    NotFinite,
    NotReady,
    ServiceError,
    StageFailed,
)
from service.metrics import Metrics
from service.pending import Pending, Row
from service.scheduler import NewRow, Scheduler, SchedulerLimits, StageJob
from service.shadow_sample import ShadowSample
from service.stage_reading import StageReading, read_stage
from service.worker import Release, Report, RunStage, StageDone, StageRaised, Worker, WorkerEnded

# A text may be passed by later, shorter ones for this many times its own full-depth time: short
# texts then hardly notice long ones, and a long one still waits in proportion to its own work.
_PATIENCE = 10.0


class Engine:
    """Continuous batching by layer over one worker. Make it on the event loop that will use it.

    full_depth_seconds: by bucket, what one text alone takes through all stages. shadow: draws the
    rows that are watched to full depth; None for none.
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
        shadow: ShadowSample | None = None,
    ) -> None:
        self._worker = worker
        self._exits = exits
        self._stage_layers = [
            last - before for before, last in zip((0, *exits), exits, strict=False)
        ]
        self._buckets = tuple(sorted(full_depth_seconds))
        self._metrics = metrics
        self._clock = clock
        self._shadow = ShadowSample.empty() if shadow is None else shadow
        self._times = StageTimes(len(exits), full_depth_seconds)
        self._scheduler = Scheduler(
            stages=len(exits),
            limits=limits,
            patience_seconds={
                bucket: _PATIENCE * seconds for bucket, seconds in full_depth_seconds.items()
            },
        )
        self._admission = Admission(self._scheduler, limits, full_depth_seconds)
        self._row_ids = count()
        self._rows: dict[int, Row] = {}
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

    @property
    def admission(self) -> Admission:
        """Whether more can be taken, and how long it would wait."""
        return self._admission

    def submit(
        self,
        texts: Sequence[EncodedText],
        policy: Policy,
        *,
        explain: bool,
        deadline: float | None = None,
    ) -> Pending:
        """Admits all texts of a request, at least one, or none.

        deadline: on the engine's clock; a text is then answered at the deepest exit that makes it.
        Raises NotReady, Overloaded, or TooManyTokens where the request could never fit.
        """
        if self._refusal is not None:
            raise NotReady(self._refusal)
        row_ids = [next(self._row_ids) for _ in texts]
        rows = [
            NewRow(
                row_id=row_id,
                bucket_tokens=bucket_of(len(text), self._buckets),
                deadline=deadline,
            )
            for row_id, text in zip(row_ids, texts, strict=True)
        ]
        now = self._clock()
        if not self._scheduler.admit(rows, now):
            raise self._admission.refusal(sum(row.bucket_tokens for row in rows))
        pending = Pending(
            outcomes=asyncio.get_running_loop().create_future(),
            row_ids=range(row_ids[0], row_ids[-1] + 1),
        )
        for row_id, text in zip(row_ids, texts, strict=True):
            self._rows[row_id] = Row(pending, text, policy, now, [] if explain else None, deadline)
            self._shadow.offer(row_id)
        if deadline is not None:
            pending.expire_at(max(0.0, deadline - ANSWER_SECONDS - now), self._expire)
        self._dispatch()
        return pending

    def abandon(self, pending: Pending, error: ServiceError) -> None:
        """Gives a request up: its waiting rows go at once, running ones when their stage ends.

        Rows drawn for the shadow go on in it: texts that go deep are those given up, and a sample
        without them would find more disagreement than there is.
        """
        if pending.closed:
            return
        pending.fail(error)
        open_rows = [row_id for row_id in pending.row_ids if row_id in self._rows]
        self._metrics.given_up(len(open_rows))
        for row_id in open_rows:
            del self._rows[row_id]
        self._let_go(open_rows)

    def _expire(self, pending: Pending) -> None:
        """Answers what a request's texts have come to at its deadline: their last exit, if any."""
        open_rows = [row_id for row_id in pending.row_ids if row_id in self._rows]
        late = DeadlineMissed("The deadline came before this text reached its first exit.")
        for row_id in open_rows:
            last = self._rows[row_id].last
            if last is None:
                self._settle(row_id, late)
            else:
                chances = probabilities(last.logits[np.newaxis])[0]
                self._answer(row_id, last, chances, self._clock(), cut_short=True)
        self._let_go(open_rows)

    def _let_go(self, row_ids: Sequence[int]) -> None:
        """Stops work on rows that nobody waits for any more."""
        unwanted: list[int] = []
        for row_id in row_ids:
            if row_id in self._shadow:
                if self._scheduler.has_begun(row_id):
                    self._scheduler.demote([row_id])
                    continue
                # No exit has seen it: leaving it out tells nothing of its text.
                self._shadow.end(row_id, "dropped")
            unwanted.append(row_id)
        self._to_release.extend(self._scheduler.cancel(unwanted))
        self._send_release()

    def stop_shadow(self) -> None:
        """Drops all shadow rows and makes no more: what is left of the time belongs to answers."""
        only_shadow = [row_id for row_id in self._shadow.open_rows() if row_id not in self._rows]
        self._shadow.stop()
        self._to_release.extend(self._scheduler.cancel(only_shadow))
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
        read = read_stage(
            done,
            self._rows,
            self._shadow,
            times=self._times,
            exits=len(self._exits),
            now=self._clock(),
        )
        if read.shadow_rows:
            self._metrics.shadow_ran(layers=read.shadow_rows * self._stage_layers[job.stage - 1])
        self._to_release.extend(read.leaving)
        self._scheduler.demote(read.to_shadow)
        self._to_release.extend(self._scheduler.stage_done(job, read.leaving))
        # Before anything is answered: the worker must not wait while we write.
        self._dispatch()
        if read.answered:
            self._answer_all(done, read)
        if read.broken:
            self._metrics.non_finite(len(read.broken))
            error = NotFinite("The model gave NaN or infinity for this text; report the bundle.")
            for position in read.broken:
                self._settle(job.row_ids[position], error)
        for row_id, outcome in read.ended.items():
            self._shadow.end(row_id, outcome)

    def _answer_all(self, done: StageDone, read: StageReading) -> None:
        positions = np.asarray(read.answered)
        now = self._clock()
        for position, chances in zip(
            read.answered, probabilities(done.logits[positions]), strict=True
        ):
            left = ExitPassed(
                exit_index=done.job.stage - 1,
                entropy=float(done.entropy[position]),
                logits=done.logits[position],
            )
            cut_short = position in read.cut_short
            self._answer(done.job.row_ids[position], left, chances, now, cut_short=cut_short)

    def _answer(
        self,
        row_id: int,
        left: ExitPassed,
        chances: NDArray[np.float64],
        now: float,
        *,
        cut_short: bool,
    ) -> None:
        row = self._rows[row_id]
        wait_seconds = max(0.0, now - row.admitted_at - row.compute_seconds)
        self._metrics.answered(
            exit_layer=self._exits[left.exit_index], wait_seconds=wait_seconds, cut_short=cut_short
        )
        answer = RowAnswer(
            exit_index=left.exit_index,
            entropy=left.entropy,
            probabilities=chances,
            passed=tuple(row.passed or ()),
            wait_seconds=wait_seconds,
            compute_seconds=row.compute_seconds,
            cut_short=cut_short,
        )
        self._settle(row_id, answer)

    def _stage_raised(self, raised: StageRaised) -> None:
        self._scheduler.stage_failed(raised.job)
        self._dispatch()
        error = StageFailed("A stage of the model failed for this text; try again.")
        for row_id in raised.job.row_ids:
            if row_id in self._shadow:
                self._shadow.end(row_id, "failed")
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
        self._scheduler.cancel([*self._rows, *self._shadow.open_rows()])
        for pending in {id(row.pending): row.pending for row in self._rows.values()}.values():
            pending.fail(NotReady(reason))
        self._rows.clear()
        self._shadow.stop()
