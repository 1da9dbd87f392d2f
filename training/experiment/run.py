"""Runs the cells of an experiment that are not finished yet, and keeps each that is."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from multi_exit.errors import ConfigurationError, PatamarError
from training.checkpoint import load_manifest
from training.evaluate import evaluate_checkpoint
from training.experiment.cell import Cell, add_cell, configuration_digest, portable, read_cells
from training.experiment.config import ExperimentConfig, PlannedCell, planned_cells
from training.train import train

logger = logging.getLogger(__name__)

CELLS_FILE = "cells.jsonl"


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """All finished cells, and of those that failed which and why."""

    cells: tuple[Cell, ...]
    failures: tuple[str, ...]


def run_experiment(
    experiment: ExperimentConfig,
    output: Path,
    *,
    tasks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    most_cells: int | None = None,
) -> ExperimentResult:
    """Trains and scores every cell that `output` does not hold yet.

    A cell that was cut short is resumed where it stopped. A cell that fails is told of and left
    out; the others go on. tasks, methods: only these; most_cells: stop after so many new ones.
    Raises ConfigurationError for a wrong configuration or name before anything is trained.
    """
    planned = [
        cell
        for cell in planned_cells(experiment)
        if (tasks is None or cell.task in tasks) and (methods is None or cell.method in methods)
    ]
    for wanted, known in ((tasks, experiment.tasks), (methods, experiment.methods)):
        unknown = sorted(set(wanted or ()) - known.keys())
        if unknown:
            raise ConfigurationError(f"{unknown[0]!r} is not one of {', '.join(known)}")
    output.mkdir(parents=True, exist_ok=True)
    path = output / CELLS_FILE
    cells = list(read_cells(path)) if path.exists() else []
    done = {cell.key for cell in cells}
    failures = []
    new = 0
    for number, plan in enumerate(planned, start=1):
        digest = configuration_digest(plan.training)
        key = (plan.task, plan.method, plan.seed, digest)
        if key in done:
            continue
        if most_cells is not None and new >= most_cells:
            break
        title = f"{plan.task}, {plan.method}, seed {plan.seed}, {plan.settings}"
        logger.info("cell %d of %d: %s", number, len(planned), title)
        checkpoint = output / "checkpoints" / f"{plan.task}-{plan.method}-{plan.seed}-{digest[:8]}"
        try:
            cell = _run(plan, checkpoint, experiment.split)
        except PatamarError as error:
            logger.error("cell failed: %s: %s", title, error)
            failures.append(f"{title}: {error}")
            continue
        add_cell(path, cell)
        if not experiment.keep_checkpoints:
            shutil.rmtree(checkpoint)
        cells.append(cell)
        done.add(key)
        new += 1
    return ExperimentResult(tuple(cells), tuple(failures))


def _run(plan: PlannedCell, checkpoint: Path, split: str) -> Cell:
    train(plan.training, checkpoint)
    report = evaluate_checkpoint(checkpoint, split)
    manifest = load_manifest(checkpoint)
    return Cell(
        task=plan.task,
        method=plan.method,
        seed=plan.seed,
        settings=plan.settings,
        metric=report.metric,
        split=split,
        samples=report.samples,
        exits=report.exits,
        score_by_exit=_rounded(report.scores_by_exit),
        quality_speed=_rounded_pairs(report.quality_speed),
        exit_rules={rule: _rounded_pairs(points) for rule, points in report.exit_rules.items()},
        steps=manifest.steps,
        training_seconds=round(manifest.training_seconds, 1),
        contrastive_kept_by_exit=_rounded(manifest.contrastive_kept_by_exit),
        configuration=portable(plan.training),
        configuration_sha256=configuration_digest(plan.training),
        data_sha256=manifest.data_sha256,
        library_versions=manifest.library_versions,
    )


def _rounded(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(round(value, 6) for value in values)


def _rounded_pairs(pairs: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    return tuple((round(layers, 4), round(quality, 6)) for layers, quality in pairs)
