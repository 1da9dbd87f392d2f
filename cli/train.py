"""`patamar train CONFIG --output FOLDER`: alone, or as one of several ranks of a launcher."""

from __future__ import annotations

import argparse
import logging
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
    from training.parallel import joined_ranks
    from training.train import train

    config = load_config(options.config, options.set)
    with joined_ranks(config.run.device) as ranks:
        if not ranks.first:
            logging.getLogger("training").setLevel(logging.WARNING)
        report = train(config, options.output, ranks)
    if ranks.first:
        print(report.table())
    return 0
