"""Runs the cells of an experiment that are not finished yet, and keeps each that is."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from multi_exit.errors import ConfigurationError, PatamarError
from training.checkpoint import load_manifest
from training.evaluate import evaluate_checkpoint
from training.experiment.cell import Cell, add_cell, measured_cell
from training.experiment.config import ExperimentConfig, PlannedCell, planned_cells
from training.experiment.finished import CELLS_FILE, finished_cells
from training.train import train

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """All finished cells of the experiment, and of those that failed which and why."""

    cells: tuple[Cell, ...]
    failures: tuple[str, ...]


def run_experiment(
    experiment: ExperimentConfig,
    output: Path,
    *,
    tasks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    most_cells: int | None = None,
    when_trained: Callable[[PlannedCell, Path], None] | None = None,
) -> ExperimentResult:
    """Trains and scores every cell that `output` does not hold yet.

    A cell that was cut short is resumed where it stopped. A cell that fails is told of and left
    out; the others go on. tasks, methods: only these; most_cells: stop after so many new ones.
    when_trained: called with each new checkpoint, before it is removed.
    Raises ConfigurationError for a wrong configuration or name before anything is trained.
    """
    for wanted, known in ((tasks, experiment.tasks), (methods, experiment.methods)):
        unknown = sorted(set(wanted or ()) - known.keys())
        if unknown:
            raise ConfigurationError(f"{unknown[0]!r} is not one of {', '.join(known)}")
    planned = [
        cell
        for cell in planned_cells(experiment)
        if (tasks is None or cell.task in tasks) and (methods is None or cell.method in methods)
    ]
    output.mkdir(parents=True, exist_ok=True)
    cells = list(finished_cells(experiment, output))
    done = {cell.key for cell in cells}
    failures: list[str] = []
    new = 0
    for number, plan in enumerate(planned, start=1):
        if plan.key in done:
            continue
        if most_cells is not None and new >= most_cells:
            break
        title = f"{plan.task}, {plan.method}, seed {plan.seed}, {plan.settings}"
        logger.info("cell %d of %d: %s", number, len(planned), title)
        checkpoint = output / "checkpoints" / plan.folder
        try:
            cell = _run(plan, checkpoint)
            if when_trained is not None:
                when_trained(plan, checkpoint)
        except PatamarError as error:
            logger.error("cell failed: %s: %s", title, error)
            failures.append(f"{title}: {error}")
            continue
        add_cell(output / CELLS_FILE, cell)
        if not experiment.keep_checkpoints:
            shutil.rmtree(checkpoint)
        cells.append(cell)
        done.add(plan.key)
        new += 1
    return ExperimentResult(tuple(cells), tuple(failures))


def _run(plan: PlannedCell, checkpoint: Path) -> Cell:
    train(plan.training, checkpoint)
    return measured_cell(
        load_manifest(checkpoint),
        evaluate_checkpoint(checkpoint, plan.split),
        task=plan.task,
        method=plan.method,
        settings=plan.settings,
        split=plan.split,
    )
