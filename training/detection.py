"""How well a score tells texts to be found from others: AUROC and false positives at a recall.

Pure functions of scores, higher for texts that should be found, with bootstrap intervals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with a 95 % percentile bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DetectionDraws:
    """AUROC and false-positive rate of one score: for the data, and for each resample [draws]."""

    auroc: float
    false_positive_rate: float
    auroc_draws: Scores
    false_positive_draws: Scores


def auroc(others: Scores, wanted: Scores) -> float:
    """Chance that a wanted text scores higher than another one, ties counting half.

    others [n], wanted [m] -> in [0, 1]. Raises ValueError for an empty side or NaN.
    """
    return _Ranked.of(others, wanted).auroc()


def false_positive_rate(others: Scores, wanted: Scores, recall: float) -> float:
    """Share of the others found at the highest cut that finds `recall` of the wanted.

    A text is found where its score is at least the cut. others [n], wanted [m], recall in (0, 1]
    -> in [0, 1]. Raises ValueError for an empty side, NaN, or a recall outside.
    """
    return _Ranked.of(others, wanted).false_positive_rate(recall)


def detection_draws(
    others: Scores, wanted: Scores, *, recall: float, draws: int, seed: int
) -> DetectionDraws:
    """Both measures, for the data and for resamples of either side with replacement.

    Calls with the same sizes and seed see the same resamples, so that scores of the same texts
    are compared pair by pair.
    """
    ranked = _Ranked.of(others, wanted)
    found = np.array(
        [
            (resampled.auroc(), resampled.false_positive_rate(recall))
            for resampled in (
                ranked.weighed(*counts)
                for counts in _resamples(len(others), len(wanted), draws=draws, seed=seed)
            )
        ]
    )
    return DetectionDraws(
        auroc=ranked.auroc(),
        false_positive_rate=ranked.false_positive_rate(recall),
        auroc_draws=found[:, 0],
        false_positive_draws=found[:, 1],
    )


def estimate(value: float, draws: Scores) -> Estimate:
    """A value and the middle 95 % of its resamples."""
    low, high = np.quantile(draws, (0.025, 0.975))
    return Estimate(value, float(low), float(high))


def _resamples(
    others: int, wanted: int, *, draws: int, seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """How often each text of either side is drawn."""
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        yield (
            np.bincount(rng.integers(others, size=others), minlength=others),
            np.bincount(rng.integers(wanted, size=wanted), minlength=wanted),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Ranked:
    """Texts of either side at each distinct score, ascending, [values]; places of the texts."""

    others: Scores
    wanted: Scores
    places: tuple[NDArray[np.int64], NDArray[np.int64]]

    @classmethod
    def of(cls, others: Scores, wanted: Scores) -> _Ranked:
        if len(others) == 0 or len(wanted) == 0:
            raise ValueError("both sides need texts")
        scores = np.concatenate([others, wanted])
        if np.isnan(scores).any():
            raise ValueError("scores must be numbers")
        _, places = np.unique(scores, return_inverse=True)
        size = int(places.max()) + 1
        first, second = places[: len(others)], places[len(others) :]
        return cls(
            np.bincount(first, minlength=size).astype(np.float64),
            np.bincount(second, minlength=size).astype(np.float64),
            (first, second),
        )

    def weighed(self, others: NDArray[np.int64], wanted: NDArray[np.int64]) -> _Ranked:
        """The same scores, each text as often as told."""
        size, (first, second) = len(self.others), self.places
        return _Ranked(
            np.bincount(first, weights=others, minlength=size).astype(np.float64),
            np.bincount(second, weights=wanted, minlength=size).astype(np.float64),
            self.places,
        )

    def auroc(self) -> float:
        below = np.cumsum(self.others) - self.others / 2
        return float((self.wanted * below).sum() / (self.others.sum() * self.wanted.sum()))

    def false_positive_rate(self, recall: float) -> float:
        if not 0 < recall <= 1:
            raise ValueError(f"a recall lies in (0, 1], not {recall}")
        found = np.cumsum(self.wanted[::-1])[::-1]
        # The highest distinct score at which enough are found; a hair less, for rounding.
        cut = np.flatnonzero(found >= recall * found[0] * (1 - 1e-12))[-1]
        return float(self.others[cut:].sum() / self.others.sum())
