"""Whether contracts calibrated on one half of real texts are kept on the other half.

Two questions, two ways to draw:

- *split*: calibrate on a random half, look at the other half. That is what an operator sees. The
  other half is itself a sample, so a contract kept in truth may look broken there, and a pool of
  texts that is finite makes both halves move against each other: more than delta is expected.
- *redraw*: calibrate on as many texts drawn from all of them with replacement. All of them are then
  the whole truth, and the promise is exactly the certificate's: broken at most delta of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.quality.exit_outputs import ExitRecord
from multi_exit.binomial import binomial_upper_bound
from multi_exit.certificate import CertificateKind
from multi_exit.certification import Certifier
from multi_exit.outcome import ExitAnswers, LabelledOutputs
from multi_exit.policy import Policy
from multi_exit.threshold_path import constant_path, per_exit_path

EPSILONS = (0.005, 0.01, 0.02)
DELTA = 0.05
TUNE_SHARE = 0.3
_BLOCK = 100
# One threshold for all exits, certified on the whole half; one for each, tuned on 30 % of the same
# half and certified on the rest.
PATHS = ("constant", "by exit")

# Kind, epsilon, way and path.
_Key = tuple[CertificateKind, float, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """One promise over all draws. way: "split" or "redraw". path: one of PATHS.

    kept: draws whose truth is within epsilon, with its 95 % Clopper-Pearson interval; full depth
    keeps every promise. certified: draws in which anything faster than full depth was. layers:
    average layers run, mean and quartiles over the draws. truth: mean of what epsilon bounds.
    """

    record: str
    kind: CertificateKind
    epsilon: float
    way: str
    path: str
    draws: int
    kept: int
    kept_low: float
    kept_high: float
    certified: int
    layers: float
    layers_quartiles: tuple[float, float, float]
    truth: float


@dataclass(frozen=True, slots=True)
class _Draw:
    """Rows of the record: those of one half, in a random order, and those that are the truth."""

    half: NDArray[np.int64]
    truth: NDArray[np.int64]


def contracts(record: ExitRecord, draws: int, seed: int) -> list[Contract]:
    """Every kind, epsilon, way and path of one record."""
    found: dict[_Key, list[tuple[float, float, bool]]] = {}
    pool = _Pool(record)
    rng = np.random.default_rng(seed)
    for number in range(draws):
        if number % _BLOCK == 0:
            # Blocks have seeds of their own, so that several processes can share the draws.
            rng = np.random.default_rng(seed + number // _BLOCK)
        for way, draw in (("split", _split(rng, pool)), ("redraw", _redraw(rng, pool))):
            for path, kind, epsilon, result in _calibrated(pool, draw):
                found.setdefault((kind, epsilon, way, path), []).append(result)
    return [_summary(record.name, key, results) for key, results in sorted(found.items())]


def interval(happened: int, of: int) -> tuple[float, float]:
    """The 95 % Clopper-Pearson interval of a share."""
    low = 1.0 - binomial_upper_bound(of - happened, of, 0.025)
    return low, binomial_upper_bound(happened, of, 0.025)


class _Pool:
    """A record as what calibration takes."""

    def __init__(self, record: ExitRecord) -> None:
        self.texts = LabelledOutputs(ExitAnswers(record.predicted, record.entropy), record.labels)
        self.labels = record.labels
        self.predicted = record.predicted
        self.exits = record.exits
        self.layers = np.asarray(record.exits)
        self.constant = constant_path(len(record.exits))

    def __len__(self) -> int:
        return len(self.labels)

    def under(
        self, policy: Policy, rows: NDArray[np.int64], kind: CertificateKind
    ) -> tuple[float, float]:
        """What a promise of this kind bounds, on these rows, and the average layers run."""
        answers = ExitAnswers(self.predicted[rows], self.texts.outputs.entropy[rows])
        taken = answers.exits_taken(policy)
        answered, full_depth = answers.labels[np.arange(len(rows)), taken], answers.labels[:, -1]
        if kind == "accuracy_drop":
            labels = self.labels[rows]
            broken = (full_depth == labels).mean() - (answered == labels).mean()
        else:
            broken = (answered != full_depth).mean()
        return float(broken), float(self.layers[taken].mean())


def _split(rng: np.random.Generator, pool: _Pool) -> _Draw:
    order = rng.permutation(len(pool))
    middle = len(pool) // 2
    return _Draw(order[:middle], order[middle:])


def _redraw(rng: np.random.Generator, pool: _Pool) -> _Draw:
    return _Draw(rng.integers(0, len(pool), len(pool) // 2), np.arange(len(pool)))


def _calibrated(
    pool: _Pool, draw: _Draw
) -> Iterator[tuple[str, CertificateKind, float, tuple[float, float, bool]]]:
    """Path, kind, epsilon, and what came of it: the truth, layers run, whether it was certified."""
    tuned = round(TUNE_SHARE * len(draw.half))
    for name in PATHS:
        by_exit = name == "by exit"
        tuning = pool.texts.rows(draw.half[:tuned]) if by_exit else None
        certifying = draw.half[tuned:] if by_exit else draw.half
        path = pool.constant if tuning is None else per_exit_path(tuning.outputs, pool.exits)
        certifier = Certifier(
            path, pool.texts.rows(certifying), epsilons=EPSILONS, delta=DELTA, tuning=tuning
        )
        for kind, epsilon in certifier.promises:
            place = certifier.fastest(kind, epsilon)
            if place is None:
                yield name, kind, epsilon, (0.0, float(pool.layers[-1]), False)
                continue
            truth, layers = pool.under(path[place], draw.truth, kind)
            yield name, kind, epsilon, (truth, layers, layers < pool.layers[-1])


def _summary(record: str, key: _Key, results: Sequence[tuple[float, float, bool]]) -> Contract:
    kind, epsilon, way, path = key
    truth, layers = np.array([(truth, layers) for truth, layers, _ in results]).T
    kept = int((truth <= epsilon).sum())
    low, high = interval(kept, len(results))
    first, middle, last = np.quantile(layers, (0.25, 0.5, 0.75)).tolist()
    return Contract(
        record=record,
        kind=kind,
        epsilon=epsilon,
        way=way,
        path=path,
        draws=len(results),
        kept=kept,
        kept_low=low,
        kept_high=high,
        certified=sum(certified for _, _, certified in results),
        layers=float(layers.mean()),
        layers_quartiles=(first, middle, last),
        truth=float(truth.mean()),
    )
