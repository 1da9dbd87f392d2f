"""What becomes of the rows of a unit, by what its exit said about them.

A row may be waited for, drawn for the shadow, or both; one that is neither was cancelled while it
ran, and the scheduler drops it.

Owner: the event loop, through the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.answers import ExitPassed
from service.deadlines import StageTimes
from service.pending import Row
from service.shadow_sample import ShadowOutcome, ShadowSample
from service.worker import StageDone


@dataclass(slots=True, kw_only=True)
class StageReading:
    """answered, broken (not finite): positions, in the unit, of rows that are waited for.

    cut_short: positions of those answered that their deadline, not their policy, takes out.
    leaving: row ids. to_shadow: row ids of those answered that stay. shadow_rows: how many ran for
    the shadow alone. ended: by row id, rows drawn of which no more is to come.
    """

    answered: list[int] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    leaving: set[int] = field(default_factory=set)
    to_shadow: list[int] = field(default_factory=list)
    cut_short: set[int] = field(default_factory=set)
    shadow_rows: int = 0
    ended: dict[int, ShadowOutcome] = field(default_factory=dict)


def read_stage(
    done: StageDone,
    rows: Mapping[int, Row],
    shadow: ShadowSample,
    *,
    times: StageTimes,
    exits: int,
    now: float,
) -> StageReading:
    """Sorts the rows of a unit, and notes what the exit said with each.

    rows: those that are waited for. exits: how many the bundle has. times: takes in this unit, and
    tells when the next exit would answer a row with a deadline.
    """
    _note_times(done, rows, times, now)
    reading = StageReading()
    exit_index = done.job.stage - 1
    entropies, finite = done.entropy.tolist(), done.finite.tolist()
    for position, row_id in enumerate(done.job.row_ids):
        row, drawn = rows.get(row_id), row_id in shadow
        if row is None and not drawn:
            continue
        if row is None:
            reading.shadow_rows += 1
        else:
            row.compute_seconds += done.seconds
            row.came_at = now
        if not finite[position]:
            _note_broken(reading, position, row_id, waited_for=row is not None, drawn=drawn)
            continue
        if drawn:
            label = int(done.logits[position].argmax())
            shadow.saw(row_id, entropy=entropies[position], label=label)
        answered = row is not None and _leaves(row, done, position, entropies[position])
        if row is not None and not answered and _too_late(row, done, times, now):
            answered = True
            reading.cut_short.add(position)
        if answered:
            reading.answered.append(position)
        if exit_index == exits - 1 or (answered and not drawn):
            reading.leaving.add(row_id)
            if drawn:
                reading.ended[row_id] = "measured"
        elif answered:
            reading.to_shadow.append(row_id)
    return reading


def _note_broken(
    reading: StageReading, position: int, row_id: int, *, waited_for: bool, drawn: bool
) -> None:
    reading.leaving.add(row_id)
    if waited_for:
        reading.broken.append(position)
    if drawn:
        reading.ended[row_id] = "failed"


def _leaves(row: Row, done: StageDone, position: int, entropy: float) -> bool:
    """Whether the row's own policy takes it out here; notes the exit for those who asked."""
    exit_index = done.job.stage - 1
    if row.passed is not None or row.deadline is not None:
        row.last = ExitPassed(exit_index=exit_index, entropy=entropy, logits=done.logits[position])
        if row.passed is not None:
            row.passed.append(row.last)
    return row.policy.leaves(exit_index, entropy)


def _too_late(row: Row, done: StageDone, times: StageTimes, now: float) -> bool:
    """Whether the next exit is expected to answer after the row's deadline."""
    if row.deadline is None:
        return False
    return now + times.until_answer(done.job.stage + 1, done.job.bucket_tokens) > row.deadline


def _note_times(done: StageDone, rows: Mapping[int, Row], times: StageTimes, now: float) -> None:
    # One row stands for all: those of a unit came at much the same time.
    row = next((rows[row_id] for row_id in done.job.row_ids if row_id in rows), None)
    if row is not None:
        times.saw(
            stage=done.job.stage,
            bucket_tokens=done.job.bucket_tokens,
            wait_seconds=now - row.came_at - done.seconds,
            run_seconds=done.seconds,
        )
