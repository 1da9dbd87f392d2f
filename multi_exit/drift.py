"""Whether live texts disagree with full depth more often than promised, watched for ever.

A share of live rows runs on to full depth in the shadow. A gambler bets against "each shadow row,
given the earlier ones, disagrees with probability at most epsilon": alternative q multiplies its
wealth by L = q / epsilon for a disagreement and (1 - q) / (1 - epsilon) otherwise, which averages
at most 1. So the total wealth, the e-value, ever reaches 1 / alpha with probability at most alpha
(Ville), however long one looks and whenever one stops.

Wealth lost in a long calm would delay the alarm, so it is spent bit by bit: before row n a new
stake w_n joins, M_n = L_n (M_{n-1} + w_n), the stakes of all rows summing to 1. This is a mixture
over the row at which drift begins (Shiryaev-Roberts with a proper prior; see Shin, Ramdas and
Rinaldo 2024, "E-detectors", for the kin that lets stakes sum to infinity).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from multi_exit.binomial import check_level

# Alternatives by their odds of disagreement, as multiples of epsilon's: below 1 for any epsilon.
_ODDS_RATIOS = (1.25, 1.5, 2.0, 3.0, 4.5, 8.0, 16.0, 64.0)
# Unspent after n rows: log(k) / log(k + n). A small k stakes most at once and favours an early
# drift; a large one a late drift.
_SPENDING_OFFSET = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftTest:
    """State of the test after `rows` shadow rows; `updated` gives the state after one more.

    epsilon: the promised share. alpha: the chance of a false alarm in all time. log_wealth: one an
    alternative, empty before the first row. alarm: the e-value has reached 1 / alpha; it stays.
    Raises ValueError for levels or a state that make no sense.
    """

    epsilon: float
    alpha: float
    rows: int = 0
    disagreements: int = 0
    log_wealth: tuple[float, ...] = ()
    alarm: bool = False

    def __post_init__(self) -> None:
        check_level("epsilon", self.epsilon)
        check_level("alpha", self.alpha)
        if not 0 <= self.disagreements <= self.rows:
            raise ValueError(f"{self.disagreements} disagreements in {self.rows} rows")
        if len(self.log_wealth) != (len(_ODDS_RATIOS) if self.rows else 0):
            raise ValueError(f"log_wealth has {len(self.log_wealth)} entries")
        if not all(map(math.isfinite, self.log_wealth)):
            raise ValueError("log_wealth must be finite")

    def updated(self, disagreed: bool) -> DriftTest:
        """The test after one more shadow row."""
        log_stake = math.log(unspent(self.rows) - unspent(self.rows + 1))
        before = self.log_wealth or (-math.inf,) * len(_ODDS_RATIOS)
        after = replace(
            self,
            rows=self.rows + 1,
            disagreements=self.disagreements + disagreed,
            log_wealth=tuple(
                log_factor + _log_add(wealth, log_stake)
                for wealth, log_factor in zip(
                    before, log_factors(self.epsilon, disagreed), strict=True
                )
            ),
        )
        alarm = self.alarm or after.log_e_value >= -math.log(self.alpha)
        return replace(after, alarm=alarm)

    @property
    def log_e_value(self) -> float:
        """Logarithm of the total wealth: the mean of the alternatives, and what is unspent."""
        total = math.log(unspent(self.rows))
        for wealth in self.log_wealth:
            total = _log_add(total, wealth - math.log(len(_ODDS_RATIOS)))
        return total

    @property
    def e_value(self) -> float:
        """Evidence of drift now: 1 for none; capped at the largest float."""
        return math.exp(min(self.log_e_value, math.log(sys.float_info.max)))

    def as_document(self) -> dict[str, Any]:
        """The state in JSON's own types."""
        return {**asdict(self), "log_wealth": list(self.log_wealth)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> DriftTest:
        """The state that `as_document` wrote. Raises ValueError for anything else."""
        try:
            return cls(
                epsilon=_number(document["epsilon"]),
                alpha=_number(document["alpha"]),
                rows=_count(document["rows"]),
                disagreements=_count(document["disagreements"]),
                log_wealth=tuple(_number(wealth) for wealth in document["log_wealth"]),
                alarm=_flag(document["alarm"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the state of a drift test: {error!r}") from error


def alternatives(epsilon: float) -> tuple[float, ...]:
    """The shares above epsilon that are bet on."""
    return tuple(r * epsilon / (1 - epsilon + r * epsilon) for r in _ODDS_RATIOS)


def log_factors(epsilon: float, disagreed: bool) -> tuple[float, ...]:
    """log L of one row, one an alternative."""
    # q / epsilon = r / s and (1 - q) / (1 - epsilon) = 1 / s with s = 1 + (r - 1) epsilon.
    return tuple(
        (math.log(r) if disagreed else 0.0) - math.log1p((r - 1) * epsilon) for r in _ODDS_RATIOS
    )


def unspent(rows: int) -> float:
    """Share of the first stake that is left after `rows` rows."""
    return math.log(_SPENDING_OFFSET) / math.log(_SPENDING_OFFSET + rows)


def _log_add(a: float, b: float) -> float:
    """log(exp(a) + exp(b))"""
    high, low = max(a, b), min(a, b)
    return high + math.log1p(math.exp(low - high))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a count")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value
