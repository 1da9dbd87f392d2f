"""Operating points and their certificates from a calibration split, on known outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from multi_exit.bundle import OperatingPoint
from multi_exit.certificate import Certificate, CertificateKind
from multi_exit.certification import Certifier
from multi_exit.errors import ConfigurationError
from multi_exit.outcome import ExitAnswers, LabelledOutputs, policy_outcome
from multi_exit.policy import Policy
from multi_exit.threshold_path import constant_path, per_exit_path

__all__ = [
    "FEWEST_TUNING_TEXTS",
    "FULL_DEPTH",
    "CalibrationConfig",
    "LabelledOutputs",
    "ModelShape",
    "calibrate",
    "default_point",
    "measure",
]

FULL_DEPTH = "full-depth"
_NAMES: dict[CertificateKind, str] = {
    "consistency": "disagreement",
    "accuracy_drop": "accuracy-drop",
    "expected_disagreement": "expected-disagreement",
}
# A label that does not change cannot be lost; a promise about the average is the weakest.
_STRENGTH: tuple[CertificateKind, ...] = ("consistency", "accuracy_drop", "expected_disagreement")
# Fewer texts than this cannot place a threshold for every exit.
FEWEST_TUNING_TEXTS = 100


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
    that is not a label.
    """
    path = _path(shape, config, tuning)
    # Answers alone, found once: with logits at hand they would be found anew at every look.
    known = LabelledOutputs(ExitAnswers.of(certifying.outputs), certifying.labels)
    certifier = Certifier(
        path,
        known,
        epsilons=config.epsilons,
        delta=config.delta,
        tuning=tuning,
        classes=_classes(shape, config),
    )
    full_depth = Policy.constant(0.0, len(shape.exits))
    points: list[tuple[str, Policy, tuple[Certificate, ...]]] = [(FULL_DEPTH, full_depth, ())]
    points += [
        (f"threshold-{threshold:g}", Policy.constant(threshold, len(shape.exits)), ())
        for threshold in config.shown_thresholds
    ]
    points += [(name, path[at], certifier.of(at)) for at, name in _named(certifier).items()]
    measured = [
        measure(name, policy, known, shape, certificates=certificates)
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
    if config.thresholds_by_exit and tuning is not None and len(tuning) >= FEWEST_TUNING_TEXTS:
        return per_exit_path(tuning.outputs, shape.cumulative_seconds or shape.exits)
    return constant_path(len(shape.exits), config.shown_thresholds)


def _classes(shape: ModelShape, config: CalibrationConfig) -> dict[str, int]:
    """Index of every class that matters, by name."""
    unknown = [name for name in config.classes if name not in shape.label_names]
    if unknown:
        raise ConfigurationError(f"classes: {unknown[0]!r} is not a label of the bundle")
    return {name: shape.label_names.index(name) for name in config.classes}


def _named(certifier: Certifier) -> dict[int, str]:
    """Place in the path of the fastest policy for each kind and epsilon, and its name.

    One that is the fastest for several promises is named for the strongest kind, then the smallest
    epsilon.
    """
    names: dict[int, str] = {}
    strongest_first = sorted(certifier.promises, key=lambda promise: _STRENGTH.index(promise[0]))
    for kind, epsilon in strongest_first:
        place = certifier.fastest(kind, epsilon)
        if place is not None:
            names.setdefault(place, f"{_NAMES[kind]}-{100 * epsilon:g}%")
    return names
