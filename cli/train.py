"""`patamar train CONFIG --output FOLDER`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="training configuration (TOML)")
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        help="folder of the checkpoint; a run is resumed there",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="change a key of the configuration, such as objective.method=ce; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    from training.config import load_config
    from training.train import train

    report = train(load_config(options.config, options.set), options.output)
    print(report.table())
    return 0
