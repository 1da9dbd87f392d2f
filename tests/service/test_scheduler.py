"""The scheduler against a model of itself: no row lost, doubled, overtaken or starved, and none
delayed by shadow rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from service.scheduler import NewRow, Scheduler, SchedulerLimits, StageJob

PATIENCE = {4: 1.0, 8: 2.0, 32: 9.0}
STAGES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an admitted row must be."""

    due: float
    bucket: int
    stage: int = 1
    running: bool = False
    shadow: bool = False

    @property
    def queue(self) -> tuple[int, int]:
        return self.stage, self.bucket


class SchedulerMachine(RuleBasedStateMachine):
    """Drives a scheduler at random; `where` says what must be true of every admitted row."""

    jobs = Bundle("jobs")

    @initialize(
        rows=st.integers(1, 5), tokens=st.integers(1, 100), waiting_tokens=st.integers(32, 300)
    )
    def make(self, rows: int, tokens: int, waiting_tokens: int) -> None:
        self.limits = SchedulerLimits(
            max_batch_rows=rows, max_batch_tokens=tokens, max_waiting_tokens=waiting_tokens
        )
        self.scheduler = Scheduler(stages=STAGES, limits=self.limits, patience_seconds=PATIENCE)
        self.now = 0.0
        self.accepted = 0
        self.finished: set[int] = set()
        self.cancelled_running: set[int] = set()
        self.where: dict[int, Place] = {}

    @rule(seconds=st.floats(0, 20))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(buckets=st.lists(st.sampled_from(sorted(PATIENCE)), min_size=1, max_size=8))
    def admit(self, buckets: list[int]) -> None:
        rows = [
            NewRow(row_id=self.accepted + number, bucket_tokens=bucket)
            for number, bucket in enumerate(buckets)
        ]
        fits = self._tokens() + sum(buckets) <= self.limits.max_waiting_tokens
        assert self.scheduler.admit(rows, self.now) is fits
        if fits:
            self.accepted += len(rows)
            for row in rows:
                due = self.now + PATIENCE[row.bucket_tokens]
                self.where[row.row_id] = Place(due=due, bucket=row.bucket_tokens)

    @rule(target=jobs, only_full=st.booleans())
    def take(self, only_full: bool) -> StageJob | None:
        waiting = {row: place for row, place in self.where.items() if not place.running}
        ordinary = {row: place for row, place in waiting.items() if not place.shadow}
        job = self.scheduler.next_unit(only_full=only_full)
        if not ordinary:
            if only_full or not waiting:
                assert job is None
                return None
            candidates = waiting
        else:
            candidates = ordinary
        _, row_id = min((place.due, row) for row, place in candidates.items())
        queue = candidates[row_id].queue
        rows = sorted((place.due, row) for row, place in candidates.items() if place.queue == queue)
        _, bucket = queue
        capacity = self.limits.rows_of(bucket)
        if only_full and len(rows) < capacity:
            assert job is None
            return None
        assert job is not None
        assert (job.stage, job.bucket_tokens) == queue
        # The most urgent row is always in the unit: that is what bounds everybody's wait.
        assert job.row_ids == tuple(row for _, row in rows[:capacity])
        assert len(job.row_ids) == 1 or len(job.row_ids) * bucket <= self.limits.max_batch_tokens
        for row in job.row_ids:
            self.where[row] = replace(self.where[row], running=True)
        return job

    @rule(job=consumes(jobs), chooses=st.data())
    def finish(self, job: StageJob | None, chooses: st.DataObject) -> None:
        if job is None:
            return
        alive = [row for row in job.row_ids if row not in self.cancelled_running]
        leaving = set(alive)
        if job.stage < STAGES and alive:
            leaving = chooses.draw(st.sets(st.sampled_from(alive)))
        dropped = self.scheduler.stage_done(job, leaving)
        assert set(dropped) == self.cancelled_running & set(job.row_ids)
        for row in job.row_ids:
            if row in leaving or row in dropped:
                self._gone(row)
            else:
                place = self.where[row]
                self.where[row] = replace(place, stage=place.stage + 1, running=False)

    @rule(job=consumes(jobs))
    def fail(self, job: StageJob | None) -> None:
        if job is not None:
            self.scheduler.stage_failed(job)
            for row in job.row_ids:
                self._gone(row)

    @precondition(lambda self: self.accepted > 0)
    @rule(chooses=st.data())
    def cancel(self, chooses: st.DataObject) -> None:
        rows = chooses.draw(st.sets(st.integers(0, self.accepted - 1), min_size=1, max_size=6))
        gone = self.scheduler.cancel(sorted(rows))
        known = rows & self.where.keys()
        assert set(gone) == {row for row in known if not self.where[row].running}
        self.cancelled_running |= {row for row in known if self.where[row].running}
        for row in gone:
            self._gone(row)

    @precondition(lambda self: self.where.keys() - self.cancelled_running)
    @rule(chooses=st.data())
    def demote(self, chooses: st.DataObject) -> None:
        alive = sorted(self.where.keys() - self.cancelled_running)
        rows = chooses.draw(st.sets(st.sampled_from(alive), max_size=6))
        self.scheduler.demote(sorted(rows))
        for row in rows:
            self.where[row] = replace(self.where[row], shadow=True)

    @invariant()
    def every_row_is_waiting_or_running_or_finished(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        running = sum(place.running for place in self.where.values())
        assert self.scheduler.running_rows == running
        assert self.scheduler.waiting_rows == len(self.where) - running
        assert self.accepted == (
            self.scheduler.waiting_rows + self.scheduler.running_rows + len(self.finished)
        )
        assert self.scheduler.waiting_tokens == self._tokens()
        for stage in range(1, STAGES + 1):
            expected = sum(
                place.stage == stage and not place.shadow for place in self.where.values()
            )
            assert self.scheduler.rows_at(stage) == expected
        for row in range(self.accepted):
            place = self.where.get(row)
            begun = place is not None and (place.running or place.stage > 1)
            assert self.scheduler.has_begun(row) is begun

    def teardown(self) -> None:
        """Whatever waits gets through, shadow rows too, and nothing is left."""
        if not hasattr(self, "scheduler"):
            return
        for _ in range(STAGES * len(self.where)):
            job = self.scheduler.next_unit()
            if job is None:
                break
            self.scheduler.stage_done(job, job.row_ids if job.stage == STAGES else ())
        assert self.scheduler.waiting_rows == 0

    def _gone(self, row: int) -> None:
        del self.where[row]
        self.finished.add(row)
        self.cancelled_running.discard(row)

    def _tokens(self) -> int:
        """What admission is bounded by: shadow rows are bounded elsewhere."""
        return sum(place.bucket for place in self.where.values() if not place.shadow)


TestScheduler = SchedulerMachine.TestCase


def _scheduler(**limits: int) -> Scheduler:
    bounds = {"max_batch_rows": 8, "max_batch_tokens": 64, "max_waiting_tokens": 1000, **limits}
    return Scheduler(stages=STAGES, limits=SchedulerLimits(**bounds), patience_seconds=PATIENCE)


def _rows(first: int, count: int, bucket: int) -> list[NewRow]:
    return [NewRow(row_id=first + number, bucket_tokens=bucket) for number in range(count)]


def test_a_request_is_admitted_whole_or_not_at_all() -> None:
    scheduler = _scheduler(max_waiting_tokens=32)
    assert scheduler.admit(_rows(0, 7, 4), 0)
    assert not scheduler.admit(_rows(10, 2, 4), 0)
    assert scheduler.waiting_tokens == 28
    assert scheduler.admit(_rows(20, 1, 4), 0)


def test_more_texts_than_a_batch_holds_are_split() -> None:
    scheduler = _scheduler(max_batch_rows=8)
    scheduler.admit(_rows(0, 9, 4), 0)
    sizes = []
    while (job := scheduler.next_unit()) is not None:
        sizes.append(len(job.row_ids))
    assert sizes == [8, 1]


def test_one_text_always_fits_a_batch_however_long() -> None:
    scheduler = _scheduler(max_batch_tokens=16)
    scheduler.admit(_rows(0, 2, 32), 0)
    job = scheduler.next_unit()
    assert job is not None
    assert len(job.row_ids) == 1


def test_a_short_text_overtakes_a_long_one_between_its_stages() -> None:
    scheduler = _scheduler()
    scheduler.admit(_rows(0, 1, 32), 0.0)
    first = scheduler.next_unit()
    assert first is not None
    scheduler.admit(_rows(1, 1, 4), 0.1)
    scheduler.stage_done(first, ())
    second = scheduler.next_unit()
    assert second is not None
    assert second.row_ids == (1,)


def test_short_texts_cannot_overtake_a_long_one_for_ever() -> None:
    scheduler = _scheduler(max_batch_rows=1)
    scheduler.admit(_rows(0, 1, 32), 0.0)
    for number in range(1, 1000):
        scheduler.admit(_rows(number, 1, 4), float(number))
        job = scheduler.next_unit()
        assert job is not None
        if job.row_ids == (0,):
            # It is due after 9 s, the eighth short text after 8 + 1 s; ties go to who came first.
            assert number == 8
            return
        scheduler.stage_done(job, job.row_ids)
    pytest.fail("the long text starved")


def test_arrivals_join_rows_of_their_own_stage_only() -> None:
    scheduler = _scheduler()
    scheduler.admit(_rows(0, 2, 4), 0)
    first = scheduler.next_unit()
    assert first is not None
    scheduler.admit(_rows(2, 2, 4), 0)
    scheduler.stage_done(first, {0})
    second, third = scheduler.next_unit(), scheduler.next_unit()
    assert second is not None
    assert third is not None
    assert (second.stage, second.row_ids) == (2, (1,))
    assert (third.stage, third.row_ids) == (1, (2, 3))


@given(
    arrivals=st.lists(
        st.tuples(
            st.sampled_from(sorted(PATIENCE)),
            st.integers(1, STAGES),  # the stage after which it is answered
            st.booleans(),  # whether it goes on in the shadow
        ),
        max_size=25,
    ),
    arrive=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    rows=st.integers(1, 4),
)
def test_ordinary_rows_run_in_the_same_units_with_and_without_shadow_rows(
    arrivals: list[tuple[int, int, bool]], arrive: list[int], rows: int
) -> None:
    def units(*, shadow: bool) -> list[StageJob]:
        """Ordinary units, one a turn; a shadow unit takes a turn in which nothing else waits."""
        scheduler = _scheduler(max_batch_rows=rows)
        coming = list(enumerate(arrivals))
        answered: set[int] = set()
        found = []
        for turn in range(len(arrivals) * STAGES * 2 + len(arrive)):
            for _ in range(arrive[turn] if turn < len(arrive) else len(coming)):
                if coming:
                    row_id, (bucket, _, _) = coming.pop(0)
                    scheduler.admit([NewRow(row_id=row_id, bucket_tokens=bucket)], float(turn))
            job = scheduler.next_unit()
            if job is None:
                continue
            if not answered & set(job.row_ids):
                found.append(job)
            done = {row for row in job.row_ids if arrivals[row][1] <= job.stage}
            stay = {
                row for row in done if shadow and arrivals[row][2] and job.stage < STAGES
            } - answered
            gone = done - stay if not answered & set(job.row_ids) else set()
            answered |= stay
            scheduler.demote(stay)
            scheduler.stage_done(job, gone if job.stage < STAGES else set(job.row_ids))
        assert scheduler.waiting_rows == 0
        return found

    assert units(shadow=True) == units(shadow=False)


def test_shadow_rows_wait_for_all_others_and_for_an_idle_worker() -> None:
    scheduler = _scheduler(max_batch_rows=1)
    scheduler.admit(_rows(0, 3, 4), 0)
    first = scheduler.next_unit()
    assert first is not None
    scheduler.demote(first.row_ids)
    scheduler.stage_done(first, ())  # half-way, and due before the others
    for expected in (1, 2):
        job = scheduler.next_unit()
        assert job is not None
        assert job.row_ids == (expected,)
    # A full unit, but for a worker that is busy: an ordinary row may come before it is free.
    assert scheduler.next_unit(only_full=True) is None
    job = scheduler.next_unit()
    assert job is not None
    assert (job.stage, job.row_ids) == (2, (0,))


def test_a_row_in_the_shadow_makes_room_for_others() -> None:
    scheduler = _scheduler(max_waiting_tokens=8)
    scheduler.admit(_rows(0, 2, 4), 0)
    assert not scheduler.has_room(4)
    scheduler.demote([0])
    assert scheduler.admit(_rows(2, 1, 4), 0)
    assert scheduler.rows_at(1) == 2
    assert scheduler.waiting_rows == 3


def test_a_row_that_was_cancelled_or_left_cannot_go_into_the_shadow() -> None:
    scheduler = _scheduler()
    scheduler.admit(_rows(0, 2, 4), 0)
    scheduler.cancel([0])
    with pytest.raises(KeyError):
        scheduler.demote([0])
    scheduler.next_unit()
    scheduler.cancel([1])
    with pytest.raises(ValueError, match="was cancelled"):
        scheduler.demote([1])


def test_a_row_that_would_go_beyond_the_last_stage_is_a_bug() -> None:
    scheduler = _scheduler()
    scheduler.admit(_rows(0, 1, 4), 0)
    for _ in range(STAGES - 1):
        job = scheduler.next_unit()
        assert job is not None
        scheduler.stage_done(job, ())
    job = scheduler.next_unit()
    assert job is not None
    with pytest.raises(ValueError, match="last exit"):
        scheduler.stage_done(job, ())


def test_a_row_is_admitted_once() -> None:
    scheduler = _scheduler()
    scheduler.admit(_rows(0, 1, 4), 0)
    with pytest.raises(ValueError, match="admitted before"):
        scheduler.admit(_rows(0, 1, 4), 0)


@pytest.mark.parametrize(("stage", "rows"), [(0, (1,)), (1, ()), (1, (1, 1))])
def test_no_job_without_a_stage_or_rows(stage: int, rows: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="no such job"):
        StageJob(stage=stage, bucket_tokens=4, row_ids=rows)


def test_nothing_is_admitted_behind_more_work_than_may_wait_ahead() -> None:
    scheduler = _scheduler(max_waiting_tokens=1000, max_ahead_tokens=16)
    big = [NewRow(row_id=number, bucket_tokens=8) for number in range(50)]
    assert scheduler.admit(big, 0.0), "a large request may come where little waits"
    assert not scheduler.admit([NewRow(row_id=100, bucket_tokens=8)], 0.0)
    assert not scheduler.has_room(0)
    scheduler.cancel(range(2, 50))
    assert scheduler.admit([NewRow(row_id=101, bucket_tokens=8)], 0.0)


def test_a_row_with_a_deadline_before_its_patience_ends_goes_first() -> None:
    scheduler = _scheduler()
    scheduler.admit([NewRow(row_id=1, bucket_tokens=8)], 0.0)
    scheduler.admit([NewRow(row_id=2, bucket_tokens=4, deadline=1e-6)], 0.0)
    unit = scheduler.next_unit()
    assert unit is not None
    assert unit.row_ids == (2,)
