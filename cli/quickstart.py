"""`patamar quickstart`: the whole way on the example, doing only what is not done yet."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from cli.steps import Step, ensure, fingerprint
from multi_exit.bundle import file_digest, load_bundle

TRAINING_CONFIG = Path("quickstart/training.toml")
EXPORT_CONFIG = Path("quickstart/export.toml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, default=TRAINING_CONFIG, help="training (TOML)")
    parser.add_argument("--export-config", type=Path, default=EXPORT_CONFIG, help="export (TOML)")
    parser.add_argument(
        "--build", type=Path, default=Path("build/quickstart"), help="output folder"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on")


def run(options: argparse.Namespace) -> int:
    bundle_path = prepare(options.config, options.export_config, options.build)
    if os.environ.get("QUICKSTART_SERVE", "1") == "0":
        return 0
    return _serve(bundle_path, options.host, options.port)


def prepare(training_config: Path, export_config: Path, build: Path) -> Path:
    """Trains, exports and evaluates as far as needed, prints the tables, returns the bundle."""
    checkpoint, trained_from = _train(training_config, build)
    bundle_path, sealed_from = _export(checkpoint, trained_from, export_config, build)
    report_path = build / "report.json"
    ensure(
        Step(
            name="Measuring on the test texts",
            output=report_path,
            fingerprint=fingerprint(sealed_from, load_bundle(bundle_path).identifier),
            run=lambda: _report(checkpoint, bundle_path, report_path),
        )
    )
    from export.evaluate import BundleReport
    from export.tables import report_tables

    print(report_tables(BundleReport.model_validate_json(report_path.read_bytes())))
    return bundle_path


def _train(config_path: Path, build: Path) -> tuple[Path, str]:
    from training.config import load_config
    from training.train import train

    config = load_config(config_path)
    data = {str(path): file_digest(path) for path in config.data.files()}
    trained_from = fingerprint(config.model_dump(mode="json"), data)
    # A folder a configuration: going back to an earlier one finds its checkpoint still there.
    checkpoint = build / "training" / trained_from[:12]
    ensure(
        Step(
            name="Training",
            output=checkpoint,
            fingerprint=trained_from,
            run=lambda: print(train(config, checkpoint).table()),
        )
    )
    return checkpoint, trained_from


def _export(
    checkpoint: Path, trained_from: str, config_path: Path, build: Path
) -> tuple[Path, str]:
    from export.build import export_bundle
    from export.config import load_export_config

    config = load_export_config(config_path)
    bundle_path = build / "bundle"
    sealed_from = fingerprint(trained_from, config.model_dump(mode="json"))
    ensure(
        Step(
            name="Exporting, verifying, calibrating and sealing",
            output=bundle_path,
            fingerprint=sealed_from,
            run=lambda: print(export_bundle(checkpoint, bundle_path, config).identifier),
        )
    )
    return bundle_path, sealed_from


def _report(checkpoint: Path, bundle_path: Path, report_path: Path) -> None:
    from export.build import evaluate_on_test

    report = evaluate_on_test(checkpoint, load_bundle(bundle_path))
    report_path.write_text(report.model_dump_json(indent=1) + "\n")


def _serve(bundle_path: Path, host: str, port: int) -> int:
    from service.main import serve
    from service.settings import load_settings

    print(
        f"\nServing on http://{host}:{port} until Ctrl-C. In another terminal:\n"
        f"  curl -s http://{host}:{port}/classify -H 'Content-Type: application/json' \\\n"
        '    -d \'{"inputs": "My card still has not arrived, what now?"}\'\n'
        f"Documentation to try things: http://{host}:{port}/docs\n",
        flush=True,
    )
    serve(load_settings(bundle=bundle_path, host=host, port=port))
    return 0
