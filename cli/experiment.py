"""`patamar experiment FILE --output FOLDER`: a grid of trainings, resumed and compared."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.experiment.cell import Cell
    from training.experiment.config import ExperimentConfig, PlannedCell


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="experiment (TOML)")
    parser.add_argument(
        "--output", type=Path, required=True, help="folder of the cells; an experiment is resumed"
    )
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="train only these")
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="train only these")
    parser.add_argument("--cells", type=int, metavar="N", help="stop after N new cells")
    parser.add_argument(
        "--table", action="store_true", help="compare what is finished, train nothing"
    )
    parser.add_argument(
        "--report", type=Path, metavar="FOLDER", help="draw what is finished, as report.html there"
    )
    parser.add_argument(
        "--tracking",
        type=Path,
        metavar="FOLDER",
        help="every new training's history for TensorBoard",
    )


def run(options: argparse.Namespace) -> int:
    from multi_exit.errors import ConfigurationError
    from training.experiment.config import load_experiment
    from training.experiment.table import compare, comparison_table

    if options.cells is not None and options.cells < 1:
        raise ConfigurationError("--cells must be at least 1")
    if options.table and (options.tasks or options.methods or options.cells or options.tracking):
        raise ConfigurationError(
            "--tasks, --methods, --cells and --tracking are of training; --table trains nothing"
        )
    if options.report is not None:
        # A package that is missing is told of now, not after a night of training.
        from training.report import report_cells
    experiment = load_experiment(options.file)
    cells, failures = _finished(experiment, options) if options.table else _run(experiment, options)
    print(comparison_table(compare(cells, experiment.baseline), experiment.baseline))
    if options.report is not None:
        page = report_cells(cells, options.report, baseline=experiment.baseline)
        print(f"report: {page}", file=sys.stderr)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _finished(
    experiment: ExperimentConfig, options: argparse.Namespace
) -> tuple[Sequence[Cell], Sequence[str]]:
    from multi_exit.errors import DataError
    from training.experiment.finished import finished_cells

    cells = finished_cells(experiment, options.output)
    if not cells:
        raise DataError(f"{options.output} holds no finished cell of {options.file}")
    return cells, ()


def _run(
    experiment: ExperimentConfig, options: argparse.Namespace
) -> tuple[Sequence[Cell], Sequence[str]]:
    from training.experiment.run import run_experiment

    when_trained = None
    if options.tracking is not None:
        from training.experiment.tracking import write_scalars

        def when_trained(plan: PlannedCell, checkpoint: Path) -> None:
            write_scalars(checkpoint, options.tracking / plan.folder)

    result = run_experiment(
        experiment,
        options.output,
        tasks=options.tasks,
        methods=options.methods,
        most_cells=options.cells,
        when_trained=when_trained,
    )
    return result.cells, result.failures
