"""Which rows are watched to full depth, and what their exits said. Pure: no scheduler, no clock.

The sample must tell the truth about all texts, so nothing about a text may decide whether it is
in it. Rows are drawn at admission, before any stage, whatever their policy; those that run to full
depth anyway count as those that go on in the shadow. A drawn row takes a place at once, whether
or not it will need one, so that the bound refuses rows by how many there are, not by how early
they leave. And rows are handed on in the order in which they were admitted: in that of their ends,
rows that leave early, which wait longest for full depth, would come last, and a test that may stop
at any time would stop before them.

Owner: the event loop, through the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np

ShadowOutcome = Literal["measured", "dropped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRow:
    """What every exit said about one row: entropy and index of the label, first exit first."""

    entropies: tuple[float, ...]
    labels: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.entropies or len(self.entropies) != len(self.labels):
            raise ValueError(
                f"{len(self.entropies)} entropies and {len(self.labels)} labels (a bug)"
            )


@dataclass(slots=True)
class _Open:
    entropies: list[float] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    outcome: ShadowOutcome | None = None


class ShadowSample:
    """The rows drawn that have not been handed on yet.

    share: chance of each row to be drawn, in [0, 1]. max_rows: of those at a time. rng: decides.
    measured: gets each row that reached full depth. counted: hears what became of each row drawn.
    """

    def __init__(
        self,
        *,
        share: float,
        max_rows: int,
        rng: np.random.Generator,
        measured: Callable[[ShadowRow], object],
        counted: Callable[[ShadowOutcome], object],
    ) -> None:
        self._share = share
        self._max_rows = max_rows
        self._rng = rng
        self._measured = measured
        self._counted = counted
        # In order of admission. Those that ended stay until all before them have ended.
        self._rows: dict[int, _Open] = {}

    @classmethod
    def empty(cls) -> Self:
        """A sample that draws nothing."""
        nothing = np.random.default_rng(0)
        return cls(
            share=0.0,
            max_rows=0,
            rng=nothing,
            measured=lambda row: None,
            counted=lambda outcome: None,
        )

    def open_rows(self) -> tuple[int, ...]:
        """Ids of the rows of which more is wanted."""
        return tuple(row_id for row_id, row in self._rows.items() if row.outcome is None)

    def __contains__(self, row_id: int) -> bool:
        """Whether this row was drawn and more of its exits are wanted."""
        row = self._rows.get(row_id)
        return row is not None and row.outcome is None

    def __len__(self) -> int:
        """Rows that take a place."""
        return len(self._rows)

    def offer(self, row_id: int) -> None:
        """Draws a row that was just admitted, or not."""
        if self._share == 0 or self._rng.random() >= self._share:
            return
        if len(self._rows) < self._max_rows:
            self._rows[row_id] = _Open()
        else:
            self._counted("dropped")

    def saw(self, row_id: int, *, entropy: float, label: int) -> None:
        """Notes what the next exit said about an open row."""
        row = self._rows[row_id]
        row.entropies.append(entropy)
        row.labels.append(label)

    def end(self, row_id: int, outcome: ShadowOutcome) -> None:
        """Nothing more is to come of an open row. measured: every exit was seen."""
        self._rows[row_id].outcome = outcome
        while self._rows:
            first = next(iter(self._rows))
            row = self._rows[first]
            if row.outcome is None:
                return
            del self._rows[first]
            self._hand_on(row, row.outcome)

    def stop(self) -> None:
        """Draws no more; what is open, and what waits for it, is dropped."""
        self._share = 0.0
        dropped = len(self._rows)
        self._rows.clear()
        for _ in range(dropped):
            self._counted("dropped")

    def _hand_on(self, row: _Open, outcome: ShadowOutcome) -> None:
        self._counted(outcome)
        if outcome == "measured":
            self._measured(ShadowRow(entropies=tuple(row.entropies), labels=tuple(row.labels)))
