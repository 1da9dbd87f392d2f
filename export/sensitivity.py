"""What int8 costs each stage, measured one stage at a time, and which stages can afford it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from multi_exit.bundle import Bundle, BundleManifest
from multi_exit.offline import every_exit
from multi_exit.outcome import ExitOutputs
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import EncodedText


class StageCost(BaseModel):
    """What changes where this stage alone is int8; stages count from 1.

    changed_labels: share of texts with another label than in fp32, at the exit from this stage on
    where it is largest. changed_at_full_depth: the same at the last exit. Logit differences: at
    the last exit, over all texts and labels.
    """

    model_config = ConfigDict(frozen=True)

    stage: int
    changed_labels: float
    changed_at_full_depth: float
    mean_logit_difference: float
    largest_logit_difference: float


def int8_file(file: str) -> str:
    """Name of the int8 graph beside an fp32 one: stage_01.onnx -> stage_01.int8.onnx."""
    return f"{Path(file).stem}.int8.onnx"


def mixed(bundle: Bundle, int8_stages: Collection[int]) -> Bundle:
    """The bundle with the int8 graphs of some stages (counted from 1) in place of the fp32 ones.

    Its folder holds both. Not sealed: digests are not looked at.
    """
    stages = tuple(
        stage.model_copy(update={"file": int8_file(stage.file)}) if number in int8_stages else stage
        for number, stage in enumerate(bundle.manifest.stages, start=1)
    )
    manifest: BundleManifest = bundle.manifest.model_copy(update={"stages": stages})
    return Bundle(bundle.path, manifest, bundle.identifier)


def keep_chosen(bundle: Bundle, int8_stages: Collection[int]) -> None:
    """Leaves one graph a stage in the bundle's folder, under the fp32 graph's name."""
    for number, stage in enumerate(bundle.manifest.stages, start=1):
        quantised = bundle.path / int8_file(stage.file)
        if number in int8_stages:
            quantised.replace(bundle.path / stage.file)
        else:
            quantised.unlink()


def outputs_of(bundle: Bundle, encoded: Sequence[EncodedText]) -> ExitOutputs:
    """Every exit's answers, by a runner that is closed again."""
    runner = StageRunner(bundle, provider="cpu", threads=0)
    try:
        return every_exit(runner, bundle.manifest, encoded)
    finally:
        runner.close()


def stage_costs(
    bundle: Bundle,
    encoded: Sequence[EncodedText],
    reference: ExitOutputs,
    *,
    advanced: Callable[[int], object] = lambda stages: None,
) -> tuple[StageCost, ...]:
    """Makes one stage after another int8 and compares with the fp32 answers, `reference`.

    bundle: its folder holds the int8 graphs too. `advanced` is called with 1 after each stage.
    """
    costs = []
    for stage in range(1, len(bundle.manifest.stages) + 1):
        alone = outputs_of(mixed(bundle, {stage}), encoded)
        costs.append(stage_cost(stage, alone, reference))
        advanced(1)
    return tuple(costs)


def stage_cost(stage: int, alone: ExitOutputs, reference: ExitOutputs) -> StageCost:
    """Compares the answers with one stage in int8 with the fp32 ones."""
    changed = changed_labels(alone, reference)[stage - 1 :]
    differences = np.abs(alone.logits[:, -1] - reference.logits[:, -1])
    return StageCost(
        stage=stage,
        changed_labels=float(changed.max()),
        changed_at_full_depth=float(changed[-1]),
        mean_logit_difference=float(differences.mean()),
        largest_logit_difference=float(differences.max()),
    )


def changed_labels(outputs: ExitOutputs, reference: ExitOutputs) -> NDArray[np.float64]:
    """Share of texts with another label than in `reference`, by exit, [exits]."""
    shares: NDArray[np.float64] = (outputs.labels != reference.labels).mean(axis=0)
    return shares


def affordable(costs: Sequence[StageCost], largest_cost: float) -> frozenset[int]:
    """Stages that change at most the share `largest_cost` of the labels at full depth."""
    return frozenset(cost.stage for cost in costs if cost.changed_at_full_depth <= largest_cost)
