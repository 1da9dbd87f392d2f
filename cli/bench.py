"""`patamar bench staging|peers`: measurements, each interleaved in one run."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from multi_exit.errors import ConfigurationError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    staging = kinds.add_parser("staging", help="all stages in sequence against one graph")
    staging.add_argument("bundle", type=Path)
    staging.add_argument("--rounds", type=int, default=30)
    staging.add_argument("--threads", type=int, default=0, help="0 for all there are")
    peers = kinds.add_parser("peers", help="our server against a transformers pipeline on FastAPI")
    peers.add_argument("bundle", type=Path)
    peers.add_argument("--checkpoint", type=Path, required=True, help="the bundle's checkpoint")
    peers.add_argument("--texts", type=Path, required=True, help="CSV file with a column `text`")
    peers.add_argument("--connections", type=int, nargs="+", default=[1, 16])
    peers.add_argument("--rounds", type=int, default=7)
    peers.add_argument("--seconds", type=int, default=5, help="seconds of one run of load")
    peers.add_argument("--threads", type=int, default=0, help="0 for all there are")
    for kind in (staging, peers):
        kind.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from bench.machine import describe_machine

    if options.rounds < 2:
        raise ConfigurationError("--rounds must be at least 2: an interval needs several")
    table, figures = _staging(options) if options.kind == "staging" else _peers(options)
    if options.json:
        command = ["patamar", *sys.argv[1:]]
        print(json.dumps({"machine": describe_machine(), "command": command, **figures}))
    else:
        print(table)
    return 0


def _staging(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    from bench.staging import measure_staging, staging_json, staging_table
    from multi_exit.bundle import load_bundle

    bundle = load_bundle(options.bundle)
    results = measure_staging(bundle, threads=options.threads, rounds=options.rounds)
    return staging_table(results), {"bundle": bundle.identifier, "staging": staging_json(results)}


def _peers(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    from bench import peers
    from bench.peer_model import write_peer_model
    from multi_exit.bundle import load_bundle
    from service.cpu_quota import available_threads
    from training.data.tables import read_texts

    bundle = load_bundle(options.bundle)
    threads = options.threads or available_threads()
    texts = read_texts(options.texts)
    point = peers.one_point_operating_point(bundle.manifest)
    with ExitStack() as servers:
        folder = Path(servers.enter_context(tempfile.TemporaryDirectory()))
        write_peer_model(options.checkpoint, folder / "peer")
        ours, theirs = peers.free_port(), peers.free_port()
        for name, command, port in (
            ("patamar", peers.patamar_command(options.bundle, ours, threads), ours),
            ("peer", peers.pipeline_command(folder / "peer", theirs, threads), theirs),
        ):
            servers.enter_context(peers.running(command, port, folder / f"{name}.log"))
        contenders = [
            peers.Contender(name=peers.PEER, port=theirs, knobs={}),
            peers.Contender(name="patamar, full depth", port=ours, knobs={"threshold": 0.0}),
            peers.Contender(
                name=f"patamar, {point.name}", port=ours, knobs={"threshold": point.thresholds[0]}
            ),
        ]
        samples = peers.measure_peers(
            contenders,
            texts,
            connections=options.connections,
            rounds=options.rounds,
            seconds=options.seconds,
        )
    comparisons = peers.compare(samples)
    figures = {
        "bundle": bundle.identifier,
        "operating_point": point.model_dump(mode="json"),
        **peers.comparison_json(samples, comparisons),
    }
    return peers.comparison_table(comparisons), figures
