"""When a text leaves: one entropy threshold for every exit, and the deepest exit allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from multi_exit.errors import PolicyError


def exit_within(exits: Sequence[int], max_layer: int) -> int | None:
    """Index of the deepest exit at or above layer `max_layer`; None before the first exit.

    exits: exit layers, ascending.
    """
    reachable = sum(layer <= max_layer for layer in exits)
    return reachable - 1 if reachable else None


@dataclass(frozen=True, slots=True)
class Policy:
    """Leave at the first exit whose normalised entropy is strictly below its threshold.

    thresholds: one for each exit, in [0, 1]; that of the last exit is never used.
    last_exit: index of the deepest exit allowed (counted from 0), which always answers;
        None means full depth.
    Raises PolicyError for no threshold, one outside [0, 1] or NaN, or a last_exit out of range.
    """

    thresholds: tuple[float, ...]
    last_exit: int | None = None

    def __post_init__(self) -> None:
        if not self.thresholds:
            raise PolicyError("a policy needs one threshold for each exit; got none")
        for threshold in self.thresholds:
            if math.isnan(threshold) or not 0.0 <= threshold <= 1.0:
                raise PolicyError(f"thresholds must lie in [0, 1]; got {threshold}")
        if self.last_exit is not None and not 0 <= self.last_exit < len(self.thresholds):
            raise PolicyError(
                f"last_exit must lie in 0..{len(self.thresholds) - 1}; got {self.last_exit}"
            )

    @classmethod
    def constant(cls, threshold: float, exits: int) -> Policy:
        """The same threshold at each of `exits` exits."""
        return cls((threshold,) * exits)

    @property
    def deepest(self) -> int:
        """Index of the exit that always answers."""
        return len(self.thresholds) - 1 if self.last_exit is None else self.last_exit

    def capped(self, last_exit: int) -> Policy:
        """This policy, but never deeper than exit `last_exit` (counted from 0)."""
        return Policy(self.thresholds, min(last_exit, self.deepest))

    def leaves(self, exit_index: int, entropy: float) -> bool:
        """Whether a text with this entropy leaves at exit `exit_index` (counted from 0)."""
        # Strictly below: threshold 0 must mean full depth, even for entropy exactly 0.
        # NaN compares false, so a broken row goes on; whoever runs it must check and count it.
        # float: numpy would round the threshold to float32 beside a float32 entropy.
        return exit_index >= self.deepest or float(entropy) < self.thresholds[exit_index]

    def exit_index(self, entropies: Sequence[float]) -> int:
        """Index of the exit at which a text with these entropies, one an exit, leaves."""
        if len(entropies) != len(self.thresholds):
            raise PolicyError(
                f"the policy has {len(self.thresholds)} exits, the text {len(entropies)} entropies"
            )
        return next(index for index, entropy in enumerate(entropies) if self.leaves(index, entropy))
