"""`patamar experiment FILE --output FOLDER`: a grid of trainings, resumed and compared."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="experiment (TOML)")
    parser.add_argument(
        "--output", type=Path, required=True, help="folder of the cells; an experiment is resumed"
    )
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only these; all without")
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="only these; all without")
    parser.add_argument("--cells", type=int, metavar="N", help="stop after N new cells")
    parser.add_argument(
        "--table", action="store_true", help="compare what is finished, train nothing"
    )


def run(options: argparse.Namespace) -> int:
    from training.experiment.cell import read_cells
    from training.experiment.config import load_experiment
    from training.experiment.run import CELLS_FILE, ExperimentResult, run_experiment
    from training.experiment.table import compare, comparison_table

    experiment = load_experiment(options.file)
    if options.table:
        result = ExperimentResult(read_cells(options.output / CELLS_FILE), failures=())
    else:
        result = run_experiment(
            experiment,
            options.output,
            tasks=options.tasks,
            methods=options.methods,
            most_cells=options.cells,
        )
    print(comparison_table(compare(result.cells, experiment.baseline), experiment.baseline))
    for failure in result.failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if result.failures else 0
