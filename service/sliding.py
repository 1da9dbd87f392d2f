"""Decides how far requests without a wish of their own slide as the queue grows. No clock.

Wait and steps form a loop: sliding shortens the wait that made it slide. Three things keep it from
swinging: it slides back only below half the wait at which it slid; it moves one step at a time,
holding each so that the queue can answer before the next; and a step back that had to be taken
again is held longer. A load between two steps' capacities still changes between the two, seldom.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_BACK_AT = 0.5
# Down quickly, since a queue grows fast; back slowly, since a burst seldom comes alone.
_SECONDS_BEFORE_DOWN = 0.25
_SECONDS_BEFORE_BACK = 1.0
_LONGEST_HOLD_SECONDS = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slide:
    """State at one moment; `updated` gives the state after one more look at the queue.

    steps: how many there are below the default. at: where it stands, 0 for the default. down_at,
    back_at: when it last slid, and slid back. busy_at: when the wait last forbade to slide back.
    hold: how long it must allow it first. All in seconds.
    """

    steps: int
    at_wait_seconds: float
    at: int = 0
    down_at: float = float("-inf")
    back_at: float = float("-inf")
    busy_at: float = float("-inf")
    hold: float = _SECONDS_BEFORE_BACK

    def updated(self, wait_seconds: float, now: float) -> Slide:
        """wait_seconds: what a text that comes now is expected to wait; now: in seconds."""
        if wait_seconds >= _BACK_AT * self.at_wait_seconds:
            busy = replace(self, busy_at=now)
            wants_down = wait_seconds >= self.at_wait_seconds and self.at < self.steps
            return busy._down(now) if wants_down else busy
        if self.at == 0:
            return self
        # Nobody looks while nothing comes: all the steps that the calm allowed are taken at once.
        back = min(self.at, int(min((now - max(self.busy_at, self.back_at)) / self.hold, 1e9)))
        return replace(self, at=self.at - back, back_at=now) if back else self

    def _down(self, now: float) -> Slide:
        if now - self.down_at < _SECONDS_BEFORE_DOWN:
            return self
        again = now - self.back_at < 2 * self.hold
        hold = min(2 * self.hold, _LONGEST_HOLD_SECONDS) if again else _SECONDS_BEFORE_BACK
        # Steps on the way down do not count as taken again.
        return replace(
            self,
            at=self.at + 1,
            down_at=now,
            back_at=float("-inf"),
            hold=hold if again or self.at == 0 else self.hold,
        )


class Sliding:
    """Holds the state of one service. Owner: the event loop."""

    def __init__(self, steps: int, *, at_wait_seconds: float) -> None:
        self._slide = Slide(steps=steps, at_wait_seconds=at_wait_seconds)

    @property
    def at(self) -> int:
        """Steps below the default, at the last look."""
        return self._slide.at

    def look(self, wait_seconds: float, now: float) -> int:
        """Steps below the default for a request that comes now."""
        if self._slide.steps:
            self._slide = self._slide.updated(wait_seconds, now)
        return self._slide.at
