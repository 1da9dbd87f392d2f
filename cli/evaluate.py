"""`patamar evaluate FOLDER`: every exit of a checkpoint, or every operating point of a bundle."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from multi_exit.bundle import MANIFEST_FILE
from multi_exit.errors import ConfigurationError

if TYPE_CHECKING:
    from training.evaluate import EvaluationReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="checkpoint or bundle")
    parser.add_argument(
        "--split",
        choices=("validation", "calibration", "test"),
        default="test",
        help="split of the checkpoint's own data",
    )
    parser.add_argument(
        "--checkpoint", type=Path, help="for a bundle: the checkpoint whose test split to use"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--report", type=Path, metavar="FOLDER", help="draw a checkpoint, as report.html there"
    )
    parser.add_argument(
        "--map-layer",
        type=int,
        metavar="LAYER",
        help="exit whose representations the drawn map shows; the last without",
    )
    parser.add_argument(
        "--out-of-scope",
        type=Path,
        metavar="FILE",
        help="texts that belong to no label: how well a checkpoint's doubt finds them",
    )


def run(options: argparse.Namespace) -> int:
    if options.map_layer is not None and options.report is None:
        raise ConfigurationError("--map-layer is of a drawn report; name its folder with --report")
    if options.out_of_scope is not None:
        return _out_of_scope(options)
    if (options.folder / MANIFEST_FILE).exists():
        return _bundle(options)
    report = _evaluate(options)
    print(dumps(asdict(report)) if options.json else report.table())
    return 0


def _evaluate(options: argparse.Namespace) -> EvaluationReport:
    if options.report is None:
        from training.evaluate import evaluate_checkpoint

        return evaluate_checkpoint(options.folder, options.split)
    from training.report import report_checkpoint

    drawn = report_checkpoint(
        options.folder, options.split, options.report, exit_layer=options.map_layer
    )
    # Not to standard output, which may be JSON.
    print(f"report: {drawn.page}", file=sys.stderr)
    return drawn.evaluation


def _out_of_scope(options: argparse.Namespace) -> int:
    from training.out_of_scope import evaluate_out_of_scope

    if options.report is not None:
        raise ConfigurationError("--report and --out-of-scope are two evaluations; ask for one")
    found = evaluate_out_of_scope(options.folder, options.out_of_scope, options.split)
    print(dumps(asdict(found)) if options.json else found.table())
    return 0


def _bundle(options: argparse.Namespace) -> int:
    from export.build import evaluate_on_test
    from export.tables import report_tables
    from multi_exit.bundle import load_bundle

    if options.report is not None:
        raise ConfigurationError(
            "reports are drawn of checkpoints; name the bundle's checkpoint in its place"
        )
    if options.checkpoint is None:
        raise ConfigurationError("a bundle holds no texts; name its checkpoint with --checkpoint")
    report = evaluate_on_test(options.checkpoint, load_bundle(options.folder))
    print(report.model_dump_json() if options.json else report_tables(report))
    return 0
