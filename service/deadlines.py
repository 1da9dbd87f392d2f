"""When a text's next exit is expected to answer, from what stages took and rows waited lately.

Owner: the event loop, through the engine.
"""

from __future__ import annotations

from collections.abc import Mapping

# Weight of the newest observation. A few tens of units, some tenths of a second under load, tell
# a queue that has changed; one slow unit does not.
_NEWEST = 0.1
# From the last stage's end to the last byte of the answer.
ANSWER_SECONDS = 0.002


class StageTimes:
    """Moving averages of a stage's time by length, and of the wait before it.

    stages: how many there are. full_depth_seconds: by bucket, what one text alone takes through
    all of them; what is believed until a unit has run.
    """

    def __init__(self, stages: int, full_depth_seconds: Mapping[int, float]) -> None:
        self._wait = [0.0] * stages
        self._run = {
            bucket: [seconds / stages] * stages for bucket, seconds in full_depth_seconds.items()
        }

    def saw(
        self, *, stage: int, bucket_tokens: int, wait_seconds: float, run_seconds: float
    ) -> None:
        """Takes in one unit. stage: counted from 1; wait_seconds: of its rows, before it ran."""
        index, run = stage - 1, self._run[bucket_tokens]
        self._wait[index] += _NEWEST * (max(0.0, wait_seconds) - self._wait[index])
        run[index] += _NEWEST * (run_seconds - run[index])

    def until_answer(self, stage: int, bucket_tokens: int) -> float:
        """Seconds until a row that comes to this stage now is answered after it, if it leaves."""
        return self._wait[stage - 1] + self._run[bucket_tokens][stage - 1] + ANSWER_SECONDS
