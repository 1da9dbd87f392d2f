"""Decides which rows run which stage next. Pure: no threads, no clock, no device.

Rows wait per (next stage, length bucket). One unit of work is one stage over one micro-batch of
one such queue, so that arrivals join texts that are half-way, rows that left make room at once,
and short texts overtake long ones between stages.

Order: each row is due at admission plus the patience of its bucket. A unit always holds the most
urgent waiting row, filled up from that row's queue. Nobody starves: only rows admitted within its
patience can overtake a row, since later ones are due later.

Shadow rows, answered and only watched, have queues of their own. Their units run where no other
row waits and nothing runs: an ordinary row is delayed by the one that just runs, at most.

Owner: the event loop, through the engine.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

_Queue = tuple[int, int]  # (next stage, bucket)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRow:
    """A text that asks to be admitted. bucket_tokens: its padded length, which is its cost.

    deadline: when its answer is worth nothing any more; it is due then at the latest.
    """

    row_id: int
    bucket_tokens: int
    deadline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageJob:
    """Rows that run one stage together. Made by the scheduler, read by the worker."""

    stage: int  # counts from 1
    bucket_tokens: int  # padded length, equal for all rows
    row_ids: tuple[int, ...]  # hidden states stay with the worker, under these ids

    def __post_init__(self) -> None:
        if self.stage < 1 or not self.row_ids or len(set(self.row_ids)) != len(self.row_ids):
            raise ValueError(f"no such job: stage {self.stage}, rows {self.row_ids} (a bug)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Bounds. Tokens are padded tokens: what a row costs, not what its text had.

    max_ahead_tokens: nothing is admitted behind more than these; None for no such bound. Unlike
    max_waiting_tokens it bounds how long a row waits, and not how large a request may be.
    """

    max_batch_rows: int
    max_batch_tokens: int
    max_waiting_tokens: int
    max_ahead_tokens: int | None = None

    def rows_of(self, bucket_tokens: int) -> int:
        """Rows of a bucket that may run together: at least one, however long."""
        return max(1, min(self.max_batch_rows, self.max_batch_tokens // bucket_tokens))


@dataclass(slots=True)
class _Row:
    due: float
    bucket_tokens: int
    stage: int = 1
    running: bool = False
    cancelled: bool = False
    shadow: bool = False


class Scheduler:
    """The rows that were admitted and have not left yet.

    patience_seconds: by bucket, how long a row may be passed by later but shorter ones. Times are
    seconds on whatever clock the caller uses.
    """

    def __init__(
        self, *, stages: int, limits: SchedulerLimits, patience_seconds: Mapping[int, float]
    ) -> None:
        self._stages = stages
        self._limits = limits
        self._patience_seconds = patience_seconds
        self._rows: dict[int, _Row] = {}
        self._ordinary = _Waiting()
        self._shadow = _Waiting()
        # Of ordinary rows alone: what callers wait for, and what admission is bounded by.
        self._rows_by_stage: Counter[int] = Counter()
        self._tokens = 0

    @property
    def waiting_tokens(self) -> int:
        """Padded tokens of all ordinary rows that were admitted and have not left."""
        return self._tokens

    @property
    def waiting_rows(self) -> int:
        """Rows that do not run now, shadow rows included."""
        return len(self._ordinary) + len(self._shadow)

    @property
    def running_rows(self) -> int:
        return len(self._rows) - self.waiting_rows

    def rows_at(self, stage: int) -> int:
        """Ordinary rows that wait for or run this stage."""
        return self._rows_by_stage[stage]

    def has_room(self, tokens: int) -> bool:
        """Whether rows of so many padded tokens in all would be admitted now."""
        ahead = self._limits.max_ahead_tokens
        if ahead is not None and self._tokens > ahead:
            return False
        return self._tokens + tokens <= self._limits.max_waiting_tokens

    def has_begun(self, row_id: int) -> bool:
        """Whether this row has not left and runs, or has run, a stage."""
        row = self._rows.get(row_id)
        return row is not None and (row.running or row.stage > 1)

    def admit(self, rows: Sequence[NewRow], now: float) -> bool:
        """Takes all rows, or none where they do not fit. Raises ValueError for a known row id."""
        if not self.has_room(sum(row.bucket_tokens for row in rows)):
            return False
        for new in rows:
            if new.row_id in self._rows:
                raise ValueError(f"row {new.row_id} was admitted before (a bug)")
            due = now + self._patience_seconds[new.bucket_tokens]
            if new.deadline is not None:
                due = min(due, new.deadline)
            self._rows[new.row_id] = row = _Row(due=due, bucket_tokens=new.bucket_tokens)
            self._count(row, 1)
            self._enqueue(new.row_id, row)
        return True

    def next_unit(self, *, only_full: bool = False) -> StageJob | None:
        """The next micro-batch, whose rows then run until `stage_done` or `stage_failed`.

        only_full: for a worker that is busy; give nothing where the batch could still grow, and no
        shadow rows. Returns None where nothing waits.
        """
        waiting = self._ordinary
        queue = waiting.most_urgent()
        if queue is None and not only_full:
            waiting = self._shadow
            queue = waiting.most_urgent()
        if queue is None:
            return None
        stage, bucket_tokens = queue
        capacity = self._limits.rows_of(bucket_tokens)
        if only_full and waiting.size(queue) < capacity:
            return None
        row_ids = waiting.take(queue, capacity)
        for row_id in row_ids:
            self._rows[row_id].running = True
        return StageJob(stage=stage, bucket_tokens=bucket_tokens, row_ids=tuple(row_ids))

    def demote(self, row_ids: Iterable[int]) -> None:
        """Makes shadow rows of rows that nobody waits for any more. They make room for others.

        A row that runs becomes one at once too, and waits as one when its stage ends. Raises
        KeyError for a row that left, ValueError for one that was cancelled.
        """
        for row_id in row_ids:
            row = self._rows[row_id]
            if row.cancelled:
                raise ValueError(f"row {row_id} was cancelled and cannot go on (a bug)")
            if row.shadow:
                continue
            self._count(row, -1)
            if not row.running:
                self._queues(row).discard((row.stage, row.bucket_tokens), row_id)
            row.shadow = True
            if not row.running:
                self._enqueue(row_id, row)

    def stage_done(self, job: StageJob, leaving: Collection[int]) -> tuple[int, ...]:
        """Notes that a unit ran: `leaving` rows are gone, the others wait for the next stage.

        Returns the rows that go no further because they were cancelled meanwhile. Raises
        ValueError for a row that would go beyond the last stage.
        """
        dropped: list[int] = []
        for row_id in job.row_ids:
            row = self._rows[row_id]
            if row_id in leaving:
                self._remove(row_id)
            elif row.cancelled:
                self._remove(row_id)
                dropped.append(row_id)
            elif row.stage == self._stages:
                raise ValueError(f"row {row_id} did not leave at the last exit (a bug)")
            else:
                self._count(row, -1)
                row.stage += 1
                row.running = False
                self._count(row, 1)
                self._enqueue(row_id, row)
        return tuple(dropped)

    def stage_failed(self, job: StageJob) -> None:
        """Notes that a unit raised: its rows are gone, no others."""
        for row_id in job.row_ids:
            self._remove(row_id)

    def cancel(self, row_ids: Iterable[int]) -> tuple[int, ...]:
        """Drops rows nobody wants. Returns those gone at once; running ones go when their stage
        ends. Unknown rows (they left already) are passed over."""
        gone: list[int] = []
        for row_id in row_ids:
            row = self._rows.get(row_id)
            if row is None or row.cancelled:
                continue
            if row.running:
                row.cancelled = True
                continue
            self._queues(row).discard((row.stage, row.bucket_tokens), row_id)
            self._remove(row_id)
            gone.append(row_id)
        return tuple(gone)

    def _queues(self, row: _Row) -> _Waiting:
        return self._shadow if row.shadow else self._ordinary

    def _enqueue(self, row_id: int, row: _Row) -> None:
        self._queues(row).add((row.stage, row.bucket_tokens), row.due, row_id)

    def _remove(self, row_id: int) -> None:
        self._count(self._rows.pop(row_id), -1)

    def _count(self, row: _Row, sign: int) -> None:
        if not row.shadow:
            self._tokens += sign * row.bucket_tokens
            self._rows_by_stage[row.stage] += sign


class _Waiting:
    """Rows of one rank that wait, by queue; in each, those first that are due first."""

    def __init__(self) -> None:
        # Heaps of (due, row id). Rows that were discarded stay in them until they come up.
        self._heaps: dict[_Queue, list[tuple[float, int]]] = {}
        self._rows: dict[_Queue, set[int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def size(self, queue: _Queue) -> int:
        return len(self._rows[queue])

    def add(self, queue: _Queue, due: float, row_id: int) -> None:
        heapq.heappush(self._heaps.setdefault(queue, []), (due, row_id))
        self._rows.setdefault(queue, set()).add(row_id)

    def discard(self, queue: _Queue, row_id: int) -> None:
        self._rows[queue].remove(row_id)

    def take(self, queue: _Queue, count: int) -> list[int]:
        """The most urgent rows of a queue, `count` at most; they wait no longer."""
        heap, rows = self._heaps[queue], self._rows[queue]
        taken: list[int] = []
        while heap and len(taken) < count:
            _, row_id = heapq.heappop(heap)
            if row_id in rows:
                rows.remove(row_id)
                taken.append(row_id)
        return taken

    def most_urgent(self) -> _Queue | None:
        """The queue whose first row is due first of all; None where nothing waits."""
        best: tuple[float, int] | None = None
        chosen: _Queue | None = None
        for queue, heap in list(self._heaps.items()):
            rows = self._rows[queue]
            while heap and heap[0][1] not in rows:
                heapq.heappop(heap)
            if not heap:
                # Few queues are in use at a time: forgetting the others keeps this loop short.
                del self._heaps[queue], self._rows[queue]
            elif best is None or heap[0] < best:
                best, chosen = heap[0], queue
        return chosen
