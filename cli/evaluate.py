"""`patamar evaluate FOLDER`: every exit of a checkpoint, or every operating point of a bundle."""

from __future__ import annotations

import argparse
from pathlib import Path

from multi_exit.bundle import MANIFEST_FILE


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


def run(options: argparse.Namespace) -> int:
    if (options.folder / MANIFEST_FILE).exists():
        return _bundle(options)
    from dataclasses import asdict
    from json import dumps

    from training.evaluate import evaluate_checkpoint

    report = evaluate_checkpoint(options.folder, options.split)
    print(dumps(asdict(report)) if options.json else report.table())
    return 0


def _bundle(options: argparse.Namespace) -> int:
    from export.build import evaluate_on_test
    from export.tables import report_tables
    from multi_exit.bundle import load_bundle
    from multi_exit.errors import ConfigurationError

    if options.checkpoint is None:
        raise ConfigurationError("a bundle holds no texts; name its checkpoint with --checkpoint")
    report = evaluate_on_test(options.checkpoint, load_bundle(options.folder))
    print(report.model_dump_json() if options.json else report_tables(report))
    return 0
