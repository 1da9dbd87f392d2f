"""`patamar calibrate BUNDLE DATA --output NEW`: new operating points from the operator's texts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from export.recalibrate import Evidence
    from multi_exit.bundle import Bundle


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="sealed bundle")
    parser.add_argument(
        "data",
        type=Path,
        nargs="?",
        help="CSV, TSV or JSONL of texts like those that are served, which training did not see",
    )
    parser.add_argument(
        "--from-shadow",
        type=Path,
        action="append",
        metavar="FILE",
        help="instead of DATA: the service's shadow log; may be repeated",
    )
    parser.add_argument("--output", type=Path, required=True, help="folder of the new bundle")
    parser.add_argument(
        "--config",
        type=Path,
        help="calibration (TOML, as for export); without it, what the bundle was calibrated with",
    )
    parser.add_argument("--text-column", default="text", help="default: text")
    parser.add_argument("--pair-column", help="second text, for bundles that judge pairs")
    parser.add_argument(
        "--label-column", help="true labels; without it nothing is promised about accuracy"
    )
    parser.add_argument(
        "--tune-share",
        type=float,
        default=0.3,
        help="share of the texts that places thresholds; the rest certifies (default: 0.3)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="draws the texts that tune; picking the seed by its result voids the promises",
    )
    parser.add_argument("--threads", type=int, default=0, help="0 for all there are")
    parser.add_argument("--provider", choices=("auto", "cpu", "cuda"), default="auto")


def run(options: argparse.Namespace) -> int:
    from export.config import load_export_config
    from export.point_table import point_table
    from export.recalibrate import configuration_of, recalibrate
    from multi_exit.bundle import load_bundle

    bundle = load_bundle(options.bundle)
    config = load_export_config(options.config) if options.config else configuration_of(bundle)
    done = recalibrate(
        bundle,
        _evidence(bundle, options),
        options.output,
        config,
        tune_share=options.tune_share,
        seed=options.seed,
    )
    for note in done.notes:
        print(f"note: {note}", file=sys.stderr)
    print(point_table(done.bundle.manifest))
    print(f"sealed bundle {done.bundle.identifier} at {done.bundle.path}")
    return 0


def _evidence(bundle: Bundle, options: argparse.Namespace) -> Evidence:
    from export.operator_texts import read_operator_texts
    from export.recalibrate import evidence_of_shadow, evidence_of_texts
    from export.shadow_rows import read_shadow_rows
    from multi_exit.errors import ConfigurationError

    if (options.data is None) == (options.from_shadow is None):
        raise ConfigurationError("name either a file of texts or --from-shadow FILE")
    if options.from_shadow is not None:
        return evidence_of_shadow(read_shadow_rows(options.from_shadow, bundle))
    from tqdm import tqdm

    texts = read_operator_texts(
        options.data,
        text_column=options.text_column,
        pair_column=options.pair_column,
        label_column=options.label_column,
    )
    with tqdm(total=len(texts.examples), desc="texts", unit="text", disable=None) as progress:
        return evidence_of_texts(
            bundle,
            texts,
            provider=options.provider,
            threads=options.threads,
            advanced=progress.update,
        )
