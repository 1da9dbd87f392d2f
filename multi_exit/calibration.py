"""Operating points and their certificates from a calibration split, on known outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator

from multi_exit.betting import best_bet
from multi_exit.bundle import OperatingPoint
from multi_exit.certificate import (
    Certificate,
    CertificateKind,
    accuracy_drop_certificate,
    consistency_certificate,
    expected_disagreement_certificate,
)
from multi_exit.errors import ConfigurationError
from multi_exit.outcome import ExitOutputs, policy_outcome
from multi_exit.policy import Policy
from multi_exit.risk_control import controlled, errors_along_path
from multi_exit.threshold_path import constant_path, per_exit_path

FULL_DEPTH = "full-depth"
_NAMES: dict[CertificateKind, str] = {
    "consistency": "disagreement",
    "accuracy_drop": "accuracy-drop",
    "expected_disagreement": "expected-disagreement",
}
# Fewer texts than this cannot place a threshold for every exit.
_FEWEST_TUNING_TEXTS = 100


class CalibrationConfig(BaseModel):
    """What is promised, at which levels, and along which path. Every key has a default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epsilons: tuple[float, ...] = Field(
        (0.005, 0.01, 0.02, 0.05), description="what is promised, each with its own certificate"
    )
    delta: float = Field(0.05, gt=0, lt=1, description="risk that a promise is broken")
    default_epsilon: float | None = Field(
        0.01,
        description="the server's default policy is the fastest point certified for this share of "
        "other labels than at full depth; full depth where there is none, or where this is absent",
    )
    thresholds_by_exit: bool = Field(
        True, description="a threshold for every exit, placed on texts apart from the calibration"
    )
    classes: tuple[str, ...] = Field(
        (), description="labels for which every promise must hold on its own, too"
    )
    shown_thresholds: tuple[float, ...] = Field(
        (0.05, 0.1, 0.2, 0.3, 0.5), description="measured as operating points in any case"
    )

    @field_validator("epsilons", "shown_thresholds")
    @classmethod
    def _shares(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0.0 < value < 1.0 for value in values):
            raise ValueError("each value must lie strictly between 0 and 1")
        return tuple(sorted(set(values)))


@dataclass(frozen=True, slots=True, eq=False)
class LabelledOutputs:
    """What every exit says about some texts, and their labels, int64 [texts], if known."""

    outputs: ExitOutputs
    labels: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.outputs.entropy)

    def rows(self, chosen: NDArray[np.integer] | NDArray[np.bool_]) -> LabelledOutputs:
        """Some of the texts."""
        outputs = ExitOutputs(self.outputs.logits[chosen], self.outputs.entropy[chosen])
        return LabelledOutputs(outputs, None if self.labels is None else self.labels[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What calibration must know of a bundle.

    exits: exit layers. stage_seconds: what each stage takes for one text, where it was measured.
    """

    label_names: tuple[str, ...]
    exits: tuple[int, ...]
    stage_seconds: tuple[float, ...] | None = None

    @property
    def cumulative_seconds(self) -> tuple[float, ...] | None:
        """Time until each exit, where it was measured."""
        seconds = self.stage_seconds
        return None if seconds is None else tuple(np.cumsum(seconds).tolist())


def calibrate(
    certifying: LabelledOutputs,
    shape: ModelShape,
    config: CalibrationConfig,
    *,
    tuning: LabelledOutputs | None = None,
) -> tuple[OperatingPoint, ...]:
    """Operating points, from safe to fast: full depth, the certified ones, the thresholds shown.

    certifying: the calibration split, seen by nothing else. tuning: other texts, on which a
    threshold for every exit and the bets are chosen; without enough of them all exits share one.
    Accuracy is certified only where certifying has labels. Raises ConfigurationError for a class
    that is not a label, or one without any calibration text.
    """
    path = _path(shape, config, tuning)
    # Counted once, on the split that certifies and on the one that tunes.
    certifier = _Certifier(path, certifying, tuning, shape, config)
    full_depth = Policy.constant(0.0, len(shape.exits))
    points: list[tuple[str, Policy, tuple[Certificate, ...]]] = [(FULL_DEPTH, full_depth, ())]
    points += [
        (f"threshold-{threshold:g}", Policy.constant(threshold, len(shape.exits)), ())
        for threshold in config.shown_thresholds
    ]
    points += [(name, path[at], certifier.of(at)) for at, name in certifier.fastest().items()]
    measured = [
        measure(name, policy, certifying, shape, certificates=certificates)
        for name, policy, certificates in points
    ]
    return tuple(sorted(measured, key=lambda point: (point.speedup, point.name != FULL_DEPTH)))


def default_point(points: Sequence[OperatingPoint], config: CalibrationConfig) -> str:
    """The fastest point of the configured default epsilon, else full depth."""
    eligible = [
        point
        for point in points
        if config.default_epsilon is not None
        and point.promises("consistency", config.default_epsilon)
    ]
    return max(eligible, key=lambda point: point.speedup).name if eligible else FULL_DEPTH


def measure(
    name: str,
    policy: Policy,
    texts: LabelledOutputs,
    shape: ModelShape,
    *,
    certificates: tuple[Certificate, ...] = (),
) -> OperatingPoint:
    """What a policy does on a set of texts: layers run, agreement with full depth, accuracy."""
    outcome = policy_outcome(texts.outputs, policy, shape.exits)
    full_depth = texts.outputs.labels[:, -1]
    labels, seconds = texts.labels, shape.cumulative_seconds
    return OperatingPoint(
        name=name,
        thresholds=policy.thresholds,
        average_layers=outcome.average_layers,
        speedup=outcome.speedup,
        time_speedup=None
        if seconds is None
        else seconds[-1] / float(np.asarray(seconds)[outcome.taken].mean()),
        samples=len(texts),
        agreement=outcome.agreement,
        accuracy=None if labels is None else outcome.accuracy(labels),
        full_depth_accuracy=None if labels is None else float((full_depth == labels).mean()),
        certificates=certificates,
    )


def _path(
    shape: ModelShape, config: CalibrationConfig, tuning: LabelledOutputs | None
) -> tuple[Policy, ...]:
    if config.thresholds_by_exit and tuning is not None and len(tuning) >= _FEWEST_TUNING_TEXTS:
        return per_exit_path(tuning.outputs, shape.cumulative_seconds or shape.exits)
    return constant_path(len(shape.exits), config.shown_thresholds)


class _Certifier:
    """The certificates that each policy of a path earns by fixed-sequence testing.

    Per kind, epsilon and class the path is walked from safe to fast and left at the first policy
    that fails: no correction for many tests is needed then.
    """

    def __init__(
        self,
        path: Sequence[Policy],
        certifying: LabelledOutputs,
        tuning: LabelledOutputs | None,
        shape: ModelShape,
        config: CalibrationConfig,
    ) -> None:
        self._config = config
        self._walks: dict[tuple[CertificateKind, float], list[list[Certificate]]] = {}
        answers = _answers(path, certifying.outputs)
        tuned = None if tuning is None else _answers(path, tuning.outputs)
        everything = (None, np.ones(len(certifying), dtype=bool))
        groups: list[tuple[str | None, NDArray[np.bool_]]] = [everything]
        by_truth: list[tuple[str | None, NDArray[np.bool_]]] = [everything]
        full_depth = certifying.outputs.labels[:, -1]
        for name in config.classes:
            if name not in shape.label_names:
                raise ConfigurationError(f"classes: {name!r} is not a label of the bundle")
            index = shape.label_names.index(name)
            groups.append((name, full_depth == index))
            if certifying.labels is not None:
                by_truth.append((name, certifying.labels == index))
        disagrees = answers != full_depth
        for epsilon in config.epsilons:
            self._walk(
                "consistency",
                epsilon,
                [
                    _consistency(disagrees[:, rows], epsilon, config.delta, name)
                    for name, rows in groups
                ],
            )
            self._walk(
                "expected_disagreement",
                epsilon,
                [_expected(disagrees[:, rows], epsilon, name) for name, rows in groups],
            )
            if certifying.labels is not None:
                bets = _bets(tuned, tuning, epsilon, len(path))
                lost, gained = _against_full_depth(answers, full_depth, certifying.labels)
                self._walk(
                    "accuracy_drop",
                    epsilon,
                    [
                        _accuracy(
                            lost[:, rows],
                            gained[:, rows],
                            epsilon=epsilon,
                            delta=config.delta,
                            bets=bets,
                            label=name,
                        )
                        for name, rows in by_truth
                    ],
                )

    def of(self, index: int) -> tuple[Certificate, ...]:
        """All certificates of the policy at this place of the path."""
        return tuple(
            certificate
            for walks in self._walks.values()
            for walk in walks
            for certificate in walk[index : index + 1]
        )

    def fastest(self) -> dict[int, str]:
        """Place in the path of the fastest policy for each kind and epsilon, and its name.

        The smallest epsilon names one that is the fastest for several, consistency before others.
        """
        names: dict[int, str] = {}
        for (kind, epsilon), walks in self._walks.items():
            # All classes asked for, and all texts together.
            reached = min(len(walk) for walk in walks)
            if reached:
                names.setdefault(reached - 1, f"{_NAMES[kind]}-{100 * epsilon:g}%")
        return names

    def _walk(self, kind: CertificateKind, epsilon: float, walks: list[list[Certificate]]) -> None:
        self._walks[kind, epsilon] = walks


def _passing(certificates: Callable[[int], Certificate | None], policies: int) -> list[Certificate]:
    passed = []
    for index in range(policies):
        certificate = certificates(index)
        if certificate is None:
            break
        passed.append(certificate)
    return passed


def _consistency(
    disagrees: NDArray[np.bool_], epsilon: float, delta: float, label: str | None
) -> list[Certificate]:
    errors, samples = disagrees.sum(axis=1), disagrees.shape[1]
    return _passing(
        lambda index: consistency_certificate(
            int(errors[index]), samples, epsilon=epsilon, delta=delta, label=label
        ),
        len(errors),
    )


def _expected(disagrees: NDArray[np.bool_], epsilon: float, label: str | None) -> list[Certificate]:
    errors, samples = errors_along_path(disagrees), disagrees.shape[1]
    reached = controlled(errors, samples, epsilon) if samples else None
    return _passing(
        lambda index: expected_disagreement_certificate(
            errors[index], samples, epsilon=epsilon, label=label
        ),
        0 if reached is None else reached + 1,
    )


def _accuracy(
    lost: NDArray[np.bool_],
    gained: NDArray[np.bool_],
    *,
    epsilon: float,
    delta: float,
    bets: Sequence[float | None],
    label: str | None,
) -> list[Certificate]:
    losses, gains, samples = lost.sum(axis=1), gained.sum(axis=1), lost.shape[1]
    return _passing(
        lambda index: accuracy_drop_certificate(
            int(losses[index]),
            int(gains[index]),
            samples,
            epsilon=epsilon,
            delta=delta,
            bet=bets[index],
            label=label,
        ),
        len(losses),
    )


def _answers(path: Sequence[Policy], outputs: ExitOutputs) -> NDArray[np.int64]:
    """Index of the label that each policy answers for each text, [policies, texts]."""
    labels = outputs.labels
    rows = np.arange(len(labels))
    return np.stack([labels[rows, outputs.exits_taken(policy)] for policy in path])


def _against_full_depth(
    answers: NDArray[np.int64], full_depth: NDArray[np.int64], labels: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Texts right at full depth alone, and right here alone, each [policies, texts]."""
    right, right_at_full_depth = answers == labels, full_depth == labels
    return right_at_full_depth & ~right, right & ~right_at_full_depth


def _bets(
    answers: NDArray[np.int64] | None,
    tuning: LabelledOutputs | None,
    epsilon: float,
    policies: int,
) -> list[float | None]:
    """The bet for each policy that texts apart from the calibration split advise."""
    if answers is None or tuning is None or tuning.labels is None or len(tuning) == 0:
        return [None] * policies
    lost, gained = _against_full_depth(answers, tuning.outputs.labels[:, -1], tuning.labels)
    return [
        best_bet(int(losses), int(gains), len(tuning), epsilon)
        for losses, gains in zip(lost.sum(axis=1), gained.sum(axis=1), strict=True)
    ]
