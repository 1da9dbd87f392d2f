"""What becomes of a contract when other texts come, and how soon the drift test says so.

Two changes. *Out of scope*: texts that belong to none of the labels, as CLINC150 brings them. *Hard
labels*: the tenth of the labels, at least one, for which the contract's policy differed from full
depth most often on the calibrating half; the other half's texts of these labels then come alone.
Neither is like the calibration texts: nothing is promised for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from bench.quality.contract_splits import DELTA, interval
from bench.quality.exit_outputs import ExitRecord
from multi_exit.certification import Certifier
from multi_exit.drift import DriftTest
from multi_exit.outcome import ExitAnswers, LabelledOutputs
from multi_exit.policy import Policy
from multi_exit.threshold_path import constant_path

EPSILON, ALPHA = 0.01, 0.01
# Share of the live texts that is of the other kind, once it has come.
SHIFTED_SHARES = (1.0, 0.5, 0.2, 0.0)
SHADOW_SHARES = (0.01, 1.0)
CALM_ANSWERS = 10_000
_MOST_ROWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A consistency contract of EPSILON, one threshold for all exits, when the texts change.

    shifted: share of the texts that is of the other kind. broken: calibrations (of `draws`, on
    random halves) whose contract fails there, with a 95 % Clopper-Pearson interval. disagreement,
    layers: means over the calibrations.
    """

    record: str
    change: str
    shifted: float
    draws: int
    broken: int
    broken_low: float
    broken_high: float
    disagreement: float
    layers: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Answers from the change to the alarm, in runs of one calibration each.

    early: runs with an alarm before the change, which are left out of the rest. missed: no alarm
    within 10,000 shadow rows. answers: median and ninth decile; shadow_rows: the median.
    """

    record: str
    change: str
    shifted: float
    shadow_share: float
    runs: int
    early: int
    missed: int
    answers: float | None
    answers_ninth_decile: float | None
    shadow_rows: float | None


@dataclass(frozen=True, slots=True)
class _Live:
    """Disagreement and layers of every text of the usual kind left over, and of the other kind."""

    usual: NDArray[np.bool_]
    other: NDArray[np.bool_]
    usual_layers: float
    other_layers: float


def changes(record: ExitRecord) -> tuple[str, ...]:
    """The changes that can be made of a record."""
    return ("hard labels",) if record.shift_predicted is None else ("out of scope", "hard labels")


def shifts(record: ExitRecord, change: str, draws: int, seed: int) -> list[Shift]:
    """How often the contract fails, by the share of texts of the other kind."""
    found: dict[float, list[tuple[float, float]]] = {share: [] for share in SHIFTED_SHARES}
    for live in _calibrations(record, change, draws, seed):
        for share, results in found.items():
            disagreement = share * live.other.mean() + (1 - share) * live.usual.mean()
            layers = share * live.other_layers + (1 - share) * live.usual_layers
            results.append((float(disagreement), layers))
    return [_shift(record.name, change, share, results) for share, results in found.items()]


def alarms(record: ExitRecord, change: str, runs: int, seed: int) -> list[Alarm]:
    """Delays of the drift test: CALM_ANSWERS texts of the usual kind, then the change."""
    rng = np.random.default_rng(seed)
    lives = list(_calibrations(record, change, runs, seed))
    return [
        _alarm(_Stream(record.name, change, shifted, shadow_share), lives, rng)
        for shifted in SHIFTED_SHARES
        if shifted > 0
        for shadow_share in SHADOW_SHARES
    ]


def _calibrations(record: ExitRecord, change: str, draws: int, seed: int) -> Iterator[_Live]:
    """The fastest policy that a random half certifies, on the other half and on other texts."""
    rng = np.random.default_rng(seed)
    known = ExitAnswers(record.predicted, record.entropy)
    path = constant_path(len(record.exits))
    for _ in range(draws):
        order = rng.permutation(len(record.labels))
        half, rest = np.split(order, [len(order) // 2])
        certifier = Certifier(
            path, LabelledOutputs(known.rows(half)), epsilons=(EPSILON,), delta=DELTA
        )
        place = certifier.fastest("consistency", EPSILON)
        policy = Policy.constant(0.0, len(record.exits)) if place is None else path[place]
        if change == "out of scope":
            assert record.shift_predicted is not None
            assert record.shift_entropy is not None
            other = ExitAnswers(record.shift_predicted, record.shift_entropy)
        else:
            differs, _ = _under(policy, known.rows(half), record)
            hard = _hardest(differs, record.labels[half], record.classes)
            other = known.rows(rest[np.isin(record.labels[rest], hard)])
        usual, usual_layers = _under(policy, known.rows(rest), record)
        shifted, shifted_layers = _under(policy, other, record)
        yield _Live(usual, shifted, usual_layers, shifted_layers)


def _hardest(
    differs: NDArray[np.bool_], labels: NDArray[np.int64], classes: int
) -> NDArray[np.int64]:
    """The tenth of the labels with the largest share of texts that differ, at least one."""
    texts = np.bincount(labels, minlength=classes)
    shares = np.bincount(labels, weights=differs, minlength=classes) / np.maximum(texts, 1)
    hardest: NDArray[np.int64] = np.argsort(-shares, kind="stable")[: max(1, classes // 10)]
    return hardest


def _under(
    policy: Policy, answers: ExitAnswers, record: ExitRecord
) -> tuple[NDArray[np.bool_], float]:
    taken = answers.exits_taken(policy)
    answered = answers.labels[np.arange(len(taken)), taken]
    return answered != answers.labels[:, -1], float(np.asarray(record.exits)[taken].mean())


def _shift(name: str, change: str, shifted: float, results: list[tuple[float, float]]) -> Shift:
    disagreement, layers = np.array(results).T
    broken = int((disagreement > EPSILON).sum())
    low, high = interval(broken, len(results))
    return Shift(
        record=name,
        change=change,
        shifted=shifted,
        draws=len(results),
        broken=broken,
        broken_low=low,
        broken_high=high,
        disagreement=float(disagreement.mean()),
        layers=float(layers.mean()),
    )


@dataclass(frozen=True, slots=True)
class _Stream:
    """One line of the table of alarms."""

    record: str
    change: str
    shifted: float
    shadow_share: float


def _alarm(stream: _Stream, lives: list[_Live], rng: np.random.Generator) -> Alarm:
    early, missed, answers, rows = 0, 0, [], []
    for live in lives:
        calm = DriftTest(epsilon=EPSILON, alpha=ALPHA)
        calm_rows = rng.binomial(CALM_ANSWERS, stream.shadow_share)
        for disagreed in live.usual[rng.integers(0, len(live.usual), calm_rows)]:
            calm = calm.updated(bool(disagreed))
        if calm.alarm:
            early += 1
            continue
        delay = _delay(calm, live, stream, rng)
        if delay is None:
            missed += 1
            continue
        answers.append(delay[0])
        rows.append(delay[1])
    return Alarm(
        **asdict(stream),
        runs=len(lives),
        early=early,
        missed=missed,
        answers=float(np.median(answers)) if answers else None,
        answers_ninth_decile=float(np.quantile(answers, 0.9)) if answers else None,
        shadow_rows=float(np.median(rows)) if rows else None,
    )


def _delay(
    test: DriftTest, live: _Live, stream: _Stream, rng: np.random.Generator
) -> tuple[int, int] | None:
    """Answers and shadow rows from the change to the alarm; None where none comes."""
    answers, before = 0, test.rows
    while not test.alarm:
        if test.rows - before >= _MOST_ROWS:
            return None
        # Answers up to and with the next one that is drawn for the shadow.
        answers += int(rng.geometric(stream.shadow_share))
        texts = live.other if rng.random() < stream.shifted else live.usual
        test = test.updated(bool(texts[rng.integers(len(texts))]))
    return answers, test.rows - before
