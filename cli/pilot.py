"""`patamar pilot CONFIG --output FOLDER`: angles between gradients over a training run."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="training configuration (TOML)")
    parser.add_argument(
        "--output", type=Path, required=True, help="folder of the pictures and numbers"
    )
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="measure before every N-th step"
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
    from training.pilot.run import run_pilot
    from training.pilot.tables import summary_text
    from training.pilot.write import write_pilot

    config = load_config(options.config, options.set)
    angles = run_pilot(config, options.output, every=options.every)
    name = f"{options.config.stem}, {config.objective.method}"
    page = write_pilot(angles, options.output, title=f"Gradient angles: {name}")
    print(summary_text(angles))
    if angles.scores_by_exit:
        shown = " ".join(f"{100 * score:.2f}" for score in angles.scores_by_exit)
        print(f"validation scores by exit at the end: {shown}")
    print(f"report: {page}")
    return 0
