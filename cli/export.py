"""`patamar export CHECKPOINT --output BUNDLE`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", type=Path, help="folder that `patamar train` wrote")
    parser.add_argument("--output", type=Path, required=True, help="folder of the bundle")
    parser.add_argument("--config", type=Path, help="export configuration (TOML); defaults without")


def run(options: argparse.Namespace) -> int:
    from export.build import export_bundle
    from export.config import ExportConfig, load_export_config

    config = load_export_config(options.config) if options.config else ExportConfig()
    bundle = export_bundle(options.checkpoint, options.output, config)
    print(f"sealed bundle {bundle.identifier} at {bundle.path}")
    for point in bundle.manifest.operating_points:
        chosen = " (default)" if point.name == bundle.manifest.default_point else ""
        print(f"  {point.name}: {point.speedup:.2f}x, {point.agreement:.1%} agreement{chosen}")
        for certificate in point.certificates:
            print(f"    {certificate.statement}")
    return 0
