"""Operating points from a calibration split, measured on the graphs that will serve."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from export.config import ExportConfig
from multi_exit.bundle import OperatingPoint
from multi_exit.certificate import Certificate, consistency_certificate
from multi_exit.outcome import ExitOutputs, policy_outcome
from multi_exit.policy import Policy

FULL_DEPTH = "full-depth"

_GRID = tuple(float(f"{threshold:.4g}") for threshold in np.geomspace(0.001, 0.999, num=120))


def threshold_path(config: ExportConfig) -> tuple[float, ...]:
    """Thresholds from safe to fast, fixed before any data is seen.

    Fixed-sequence testing (Angelopoulos et al., "Learn then Test", 2021) holds only for an order
    that the calibration split did not choose.
    """
    return tuple(sorted({*_GRID, *config.shown_thresholds}))


def calibrate(
    outputs: ExitOutputs,
    labels: NDArray[np.int64] | None,
    exits: tuple[int, ...],
    config: ExportConfig,
) -> tuple[OperatingPoint, ...]:
    """Operating points, from safe to fast: full depth, the certified ones, the thresholds shown.

    outputs: every exit's answers on the calibration split. labels: int64 [texts], or None where
    they are unknown; consistency needs none. exits: exit layers.
    """
    certified = _certified(outputs, exits, config)
    fastest = {
        epsilon: max(
            (t for t, found in certified.items() if epsilon in _epsilons(found)), default=None
        )
        for epsilon in config.epsilons
    }
    names = {0.0: FULL_DEPTH}
    names |= {threshold: f"threshold-{threshold:g}" for threshold in config.shown_thresholds}
    # The smallest epsilon names a point that is the fastest for several.
    for epsilon in reversed(config.epsilons):
        threshold = fastest[epsilon]
        if threshold is not None:
            names[threshold] = f"disagreement-{epsilon * 100:g}%"
    return tuple(
        measure(
            name,
            Policy.constant(threshold, len(exits)),
            outputs,
            labels,
            exits,
            certificates=certified.get(threshold, ()),
        )
        for threshold, name in sorted(names.items())
    )


def default_point(points: tuple[OperatingPoint, ...], config: ExportConfig) -> str:
    """The fastest point certified for the configured default epsilon, else full depth."""
    eligible = [
        point
        for point in points
        if config.default_epsilon is not None
        and any(found.epsilon <= config.default_epsilon for found in point.certificates)
    ]
    return max(eligible, key=lambda point: point.speedup).name if eligible else FULL_DEPTH


def measure(
    name: str,
    policy: Policy,
    outputs: ExitOutputs,
    labels: NDArray[np.int64] | None,
    exits: tuple[int, ...],
    *,
    certificates: tuple[Certificate, ...] = (),
) -> OperatingPoint:
    """What a policy does on a set of texts: layers run, agreement with full depth, accuracy."""
    outcome = policy_outcome(outputs, policy, exits)
    full_depth = outputs.labels[:, -1]
    return OperatingPoint(
        name=name,
        thresholds=policy.thresholds,
        average_layers=outcome.average_layers,
        speedup=outcome.speedup,
        samples=len(outcome.taken),
        agreement=outcome.agreement,
        accuracy=None if labels is None else outcome.accuracy(labels),
        full_depth_accuracy=None if labels is None else float((full_depth == labels).mean()),
        certificates=certificates,
    )


def _certified(
    outputs: ExitOutputs, exits: tuple[int, ...], config: ExportConfig
) -> dict[float, tuple[Certificate, ...]]:
    """For each threshold of the path, the certificates it earned by fixed-sequence testing.

    Per epsilon the path is walked from safe to fast and left at the first threshold that fails:
    no correction for many tests is needed then.
    """
    path = threshold_path(config)
    earned: dict[float, list[Certificate]] = {threshold: [] for threshold in path}
    errors = [
        policy_outcome(outputs, Policy.constant(threshold, len(exits)), exits).disagreements
        for threshold in path
    ]
    for epsilon in config.epsilons:
        for threshold, count in zip(path, errors, strict=True):
            certificate = consistency_certificate(
                count, len(outputs.logits), epsilon=epsilon, delta=config.delta
            )
            if certificate is None:
                break
            earned[threshold].append(certificate)
    return {threshold: tuple(found) for threshold, found in earned.items()}


def _epsilons(certificates: tuple[Certificate, ...]) -> set[float]:
    return {certificate.epsilon for certificate in certificates}
