"""`patamar quantise BUNDLE CHECKPOINT --output FOLDER`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="fp32 bundle that `patamar export` wrote")
    parser.add_argument("checkpoint", type=Path, help="checkpoint that it was exported from")
    parser.add_argument("--output", type=Path, required=True, help="folder of the int8 bundle")
    parser.add_argument("--config", type=Path, help="quantisation (TOML); defaults without")


def run(options: argparse.Namespace) -> int:
    from export.quantise import QuantiseConfig, load_quantise_config, quantise_bundle

    config = load_quantise_config(options.config) if options.config else QuantiseConfig()
    bundle = quantise_bundle(options.bundle, options.checkpoint, options.output, config)
    print(f"sealed bundle {bundle.identifier} at {bundle.path}")
    for point in bundle.manifest.operating_points:
        chosen = " (default)" if point.name == bundle.manifest.default_point else ""
        print(f"  {point.name}: {point.speedup:.2f}x, {point.agreement:.1%} agreement{chosen}")
    return 0
