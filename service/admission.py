"""Whether more texts can be taken, how long they would wait, and how a refusal is worded."""

from __future__ import annotations

import math
from collections.abc import Mapping

from service.errors import Overloaded, ServiceError, TooManyTokens
from service.scheduler import Scheduler, SchedulerLimits

_LONGEST_RETRY_SECONDS = 30


class Admission:
    """Looks at a scheduler; changes nothing.

    full_depth_seconds: by bucket, what one text alone takes through all stages.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        limits: SchedulerLimits,
        full_depth_seconds: Mapping[int, float],
    ) -> None:
        self._scheduler = scheduler
        self._limits = limits
        self._shortest = min(full_depth_seconds)
        self._seconds_a_token = seconds_a_token(full_depth_seconds)

    @property
    def expected_wait_seconds(self) -> float:
        """How long a text that comes now waits at most, by what waits already at full depth."""
        return self._scheduler.waiting_tokens * self._seconds_a_token

    def refuse_overload(self, texts: int) -> None:
        """Raises Overloaded where texts cannot fit even if short, before they cost anything."""
        if not self._scheduler.has_room(texts * self._shortest):
            raise self._overloaded()

    @property
    def overload(self) -> Overloaded | None:
        """Why not even one short text can be taken now; None where it can."""
        return None if self._scheduler.has_room(self._shortest) else self._overloaded()

    def refusal(self, tokens: int) -> ServiceError:
        """Why a request of so many padded tokens was not admitted."""
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
        expected = math.ceil(self.expected_wait_seconds)
        ahead = self._limits.max_ahead_tokens
        by_time = ahead is not None and self._scheduler.waiting_tokens > ahead
        return Overloaded(
            retry_after_seconds=min(_LONGEST_RETRY_SECONDS, max(1, expected)),
            limit=round(ahead * self._seconds_a_token, 3)
            if ahead is not None and by_time
            else self._limits.max_waiting_tokens,
            setting="max_wait_seconds" if by_time else "max_waiting_tokens",
        )


def seconds_a_token(full_depth_seconds: Mapping[int, float]) -> float:
    """What a padded token costs through all stages, at the length where it costs most."""
    return max(seconds / bucket for bucket, seconds in full_depth_seconds.items())
