"""`patamar bench KIND`: measurements, each with its machine, versions and command as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from cli import bench_options
from multi_exit.errors import ConfigurationError

if TYPE_CHECKING:
    from bench.serving.questions import Answering
    from multi_exit.bundle import Bundle


class _Figures(NamedTuple):
    """What a measurement found: as a table to read, and as plain data."""

    table: str
    data: dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for name, kind in _KINDS.items():
        subparser = kinds.add_parser(name, help=kind.summary, description=kind.summary)
        bench_options.common(
            subparser,
            texts=name != "staging",
            threshold=name not in ("staging", "peers", "sliding"),
        )
        kind.add_arguments(subparser)


def run(options: argparse.Namespace) -> int:
    from bench.machine import describe_machine
    from multi_exit.bundle import load_bundle
    from service.cpu_quota import available_threads

    if getattr(options, "rounds", 2) < 2:
        raise ConfigurationError("--rounds must be at least 2: an interval needs several")
    bundle = load_bundle(options.bundle)
    options.threads = options.threads or available_threads()
    found = _KINDS[options.kind].measure(options, bundle)
    if options.json:
        envelope = {
            "machine": describe_machine(),
            "command": ["patamar", *sys.argv[1:]],
            "bundle": bundle.identifier,
            "threads": options.threads,
        }
        print(json.dumps({**envelope, **found.data}))
    else:
        print(found.table)
    return 0


def _staging(options: argparse.Namespace, bundle: Bundle) -> _Figures:
    from bench.engine.staging import measure_staging, staging_json, staging_table

    results = measure_staging(
        bundle, threads=options.threads, rounds=options.rounds, seed=options.seed
    )
    return _Figures(staging_table(results), {"staging": staging_json(results)})


def _efficiency(options: argparse.Namespace, bundle: Bundle) -> _Figures:
    import numpy as np

    from bench.serving.early_exit import efficiency_table, measure_efficiency
    from bench.serving.early_exit_http import loaded_efficiency_table, measure_loaded_efficiency
    from bench.serving.questions import draw

    texts = _texts(options)
    sample = draw(texts, options.sample, np.random.default_rng(options.seed))
    common = {"threshold": options.threshold, "threads": options.threads, "seed": options.seed}
    engine = measure_efficiency(bundle, sample, rounds=options.rounds, **common)
    loaded = measure_loaded_efficiency(
        bundle,
        texts,
        rounds=options.rounds,
        seconds=options.seconds,
        connections=options.connections,
        **common,
    )
    return _Figures(
        f"{efficiency_table(engine)}\n\n{loaded_efficiency_table(loaded)}",
        {"efficiency": [asdict(found) for found in engine], "under_load": asdict(loaded)},
    )


def _load(options: argparse.Namespace, bundle: Bundle) -> _Figures:
    import numpy as np

    from bench.serving.overhead import measure_overhead, overhead_table, short_texts
    from bench.serving.server_process import patamar_server
    from bench.serving.serving_load import measure_serving_load, serving_load_table
    from multi_exit.runner import StageRunner

    texts, rng = _texts(options), np.random.default_rng(options.seed)
    encoder = bundle.text_encoder()
    runner = StageRunner(bundle, provider="cpu", threads=options.threads)
    short = short_texts(texts, encoder)[: options.sample]
    loads, overheads = [], []
    with patamar_server(bundle.path, threads=options.threads) as server:
        for answering in _answerings(options, bundle):
            overheads.append(
                measure_overhead(
                    server,
                    runner,
                    bundle.manifest,
                    encoder,
                    texts=short,
                    answering=answering,
                    rounds=options.rounds,
                    rng=rng,
                )
            )
            loads.append(
                measure_serving_load(
                    server,
                    answering,
                    texts,
                    connections=options.connections,
                    limit_ms=options.limit_ms,
                    rounds=options.rounds,
                    seconds=options.seconds,
                    most_trials=options.most_trials,
                    rng=rng,
                )
            )
    return _Figures(
        f"{serving_load_table(loads)}\n\n{overhead_table(overheads)}",
        {"load": [asdict(load) for load in loads], "overhead": [asdict(o) for o in overheads]},
    )


def _mixed(options: argparse.Namespace, bundle: Bundle) -> _Figures:
    import numpy as np

    from bench.serving.mixed_lengths import measure_mixed_lengths, mixed_table
    from bench.serving.server_process import patamar_server

    texts, rng = _texts(options), np.random.default_rng(options.seed)
    with patamar_server(bundle.path, threads=options.threads) as server:
        found = [
            measure_mixed_lengths(
                server,
                answering,
                texts,
                bundle.text_encoder(),
                load=options.load,
                rate=options.rate,
                rounds=options.rounds,
                seconds=options.seconds,
                rng=rng,
            )
            for answering in _answerings(options, bundle)
        ]
    return _Figures(mixed_table(found), {"mixed": [asdict(mixed) for mixed in found]})


def _overload(options: argparse.Namespace, bundle: Bundle) -> _Figures:
    import numpy as np

    from bench.serving.overload import measure_overload, overload_table

    found = measure_overload(
        bundle,
        _answerings(options, bundle)[int(options.early)],
        _texts(options),
        threads=options.threads,
        waiting_seconds=options.waiting_seconds,
        times=options.times,
        seconds=options.seconds,
        peak_seconds=options.peak_seconds,
        rng=np.random.default_rng(options.seed),
    )
    return _Figures(overload_table(found), {"overload": asdict(found)})


def _sliding(options: argparse.Namespace, bundle: Bundle) -> _Figures:
    import numpy as np

    from bench.serving.sliding import measure_sliding, sliding_table

    found = measure_sliding(
        bundle,
        _texts(options),
        slide_to=options.slide_to,
        threads=options.threads,
        times=options.times,
        seconds=options.seconds,
        peak_seconds=options.peak_seconds,
        rng=np.random.default_rng(options.seed),
    )
    return _Figures(sliding_table(found), {"sliding": asdict(found)})


def _invariance(options: argparse.Namespace, bundle: Bundle) -> _Figures:
    import numpy as np

    from bench.serving.invariance import invariance_table, measure_invariance
    from bench.serving.server_process import patamar_server

    with patamar_server(bundle.path, threads=options.threads) as server:
        found = measure_invariance(
            server,
            _answerings(options, bundle),
            _texts(options),
            answers=options.answers,
            rng=np.random.default_rng(options.seed),
        )
    return _Figures(invariance_table(found), {"invariance": asdict(found)})


def _peers(options: argparse.Namespace, bundle: Bundle) -> _Figures:
    from bench.peers import comparison

    point = comparison.one_point_operating_point(bundle.manifest)
    texts = _texts(options)
    with comparison.contenders_running(
        bundle,
        options.checkpoint,
        point,
        peers=options.peers,
        elsewhere=options.running,
        environments=options.environments,
        threads=options.threads,
    ) as contenders:
        samples = comparison.measure_peers(
            contenders,
            texts,
            connections=options.connections,
            rounds=options.rounds,
            seconds=options.seconds,
            seed=options.seed,
        )
    comparisons = comparison.compare(samples)
    data = {
        "operating_point": point.model_dump(mode="json"),
        **comparison.comparison_json(samples, comparisons),
    }
    return _Figures(comparison.comparison_table(comparisons), data)


def _texts(options: argparse.Namespace) -> list[str]:
    from training.data.tables import read_texts

    texts = read_texts(options.texts)
    if not texts:
        raise ConfigurationError(f"{options.texts} holds no texts")
    return texts


def _answerings(options: argparse.Namespace, bundle: Bundle) -> list[Answering]:
    """Full depth first, then early exit."""
    from bench.serving.questions import early_exit, full_depth

    return [full_depth(bundle.manifest), early_exit(bundle.manifest, options.threshold)]


class _Kind(NamedTuple):
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    measure: Callable[[argparse.Namespace, Bundle], _Figures]


_KINDS = {
    "staging": _Kind("all stages in sequence against one graph", bench_options.staging, _staging),
    "efficiency": _Kind(
        "how much of early exit's ideal saving is saved", bench_options.efficiency, _efficiency
    ),
    "load": _Kind("throughput, latency and overhead of a server", bench_options.load, _load),
    "mixed": _Kind("what long texts do to short ones", bench_options.mixed, _mixed),
    "overload": _Kind("more than a server can take", bench_options.overload, _overload),
    "sliding": _Kind(
        "whether requests slide to certified points under load", bench_options.sliding, _sliding
    ),
    "invariance": _Kind("whether load changes answers", bench_options.invariance, _invariance),
    "peers": _Kind(
        "our server against others over a model of the same size", bench_options.peers, _peers
    ),
}
