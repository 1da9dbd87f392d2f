"""What a sealed bundle does on labelled texts: accuracy by exit, and by threshold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from multi_exit.bundle import Bundle
from multi_exit.offline import every_exit
from multi_exit.outcome import ExitOutputs, policy_outcome
from multi_exit.policy import Policy
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import EncodedText


class ExitScore(BaseModel):
    """Accuracy of one exit when every text is answered there."""

    model_config = ConfigDict(frozen=True)

    exit_layer: int
    accuracy: float


class PolicyScore(BaseModel):
    """What one policy does. share_by_exit: share of texts that leave at each exit."""

    model_config = ConfigDict(frozen=True)

    name: str
    thresholds: tuple[float, ...]
    accuracy: float
    agreement: float
    average_layers: float
    speedup: float
    share_by_exit: tuple[float, ...]


class BundleReport(BaseModel):
    """Scores of a bundle on a set of texts that calibration did not see."""

    model_config = ConfigDict(frozen=True)

    bundle: str
    samples: int
    layers: int
    exits: tuple[ExitScore, ...]
    policies: tuple[PolicyScore, ...]


def evaluate_bundle(
    bundle: Bundle,
    runner: StageRunner,
    encoded: Sequence[EncodedText],
    labels: NDArray[np.int64],
    *,
    advanced: Callable[[int], object] = lambda rows: None,
) -> BundleReport:
    """Runs every text through every exit; labels are int64 [texts], indices into the bundle's."""
    manifest = bundle.manifest
    outputs = every_exit(runner, manifest, encoded, advanced=advanced)
    correct = outputs.labels == labels[:, None]
    return BundleReport(
        bundle=bundle.identifier,
        samples=len(encoded),
        layers=manifest.layers,
        exits=tuple(
            ExitScore(exit_layer=layer, accuracy=float(correct[:, index].mean()))
            for index, layer in enumerate(manifest.exits)
        ),
        policies=tuple(
            _score(point.name, point.policy, outputs, labels, manifest.exits)
            for point in manifest.operating_points
        ),
    )


def _score(
    name: str,
    policy: Policy,
    outputs: ExitOutputs,
    labels: NDArray[np.int64],
    exits: tuple[int, ...],
) -> PolicyScore:
    outcome = policy_outcome(outputs, policy, exits)
    return PolicyScore(
        name=name,
        thresholds=policy.thresholds,
        accuracy=outcome.accuracy(labels),
        agreement=outcome.agreement,
        average_layers=outcome.average_layers,
        speedup=outcome.speedup,
        share_by_exit=tuple(np.bincount(outcome.taken, minlength=len(exits)) / len(labels)),
    )
