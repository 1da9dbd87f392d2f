"""What the engine keeps of a request that is under way, and of each of its rows.

Owner: the event loop, through the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from multi_exit.policy import Policy
from multi_exit.text_encoder import EncodedText
from service.answers import ExitPassed, RowOutcome
from service.errors import ServiceError


@dataclass(eq=False, slots=True)
class Pending:
    """A request under way. outcomes: resolves to what its rows came to, in order."""

    outcomes: asyncio.Future[tuple[RowOutcome, ...]]
    row_ids: range
    _found: dict[int, RowOutcome] = field(default_factory=dict)
    closed: bool = False

    def expire_at(self, seconds: float, expire: Callable[[Pending], object]) -> None:
        """Has `expire` called so many seconds from now, unless it is closed by then."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, expire, self)
        self.outcomes.add_done_callback(lambda _: timer.cancel())

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
class Row:
    """One of its texts, until it is answered."""

    pending: Pending
    text: EncodedText
    policy: Policy
    admitted_at: float
    passed: list[ExitPassed] | None  # None where nobody asked
    deadline: float | None = None
    compute_seconds: float = 0.0
    came_at: float = 0.0  # when it began to wait for the stage that it waits for or runs
    last: ExitPassed | None = None  # kept where a deadline may end it between two exits

    def __post_init__(self) -> None:
        self.came_at = self.admitted_at
