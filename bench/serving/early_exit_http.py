"""How much of what early exit could save shows in the throughput of a saturated server.

Closed loop by wrk over many connections; both policies in every round, in an order drawn anew.
Ideal throughput = that of full depth * layers / average layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from bench.interleave import Ratio, ratio
from bench.serving.load import LoadSample, closed_loop
from bench.serving.questions import PATH, Answering, early_exit, full_depth
from bench.serving.server_metrics import ServerWork, scrape, work_between
from bench.serving.server_process import ServerProcess, patamar_server
from multi_exit.bundle import Bundle

_WARM_UP_SECONDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEfficiency:
    """Texts a second and busy shares are medians over rounds. efficiency: speedup / ideal.

    busy_share: of the time that passed, how much stages ran. errors: in all rounds.
    """

    connections: int
    full_depth_per_second: float
    early_exit_per_second: float
    full_depth_busy_share: float
    early_exit_busy_share: float
    average_layers: float
    ideal_speedup: float
    speedup: Ratio
    efficiency: Ratio
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    sample: LoadSample
    work: ServerWork


def measure_loaded_efficiency(
    bundle: Bundle,
    texts: Sequence[str],
    *,
    threshold: float | None,
    threads: int,
    rounds: int,
    seconds: int,
    connections: int,
    seed: int = 0,
) -> LoadedEfficiency:
    """Serves the bundle in a process of its own. seconds: of one run of load."""
    manifest, rng = bundle.manifest, np.random.default_rng(seed)
    policies = [full_depth(manifest), early_exit(manifest, threshold)]
    runs: tuple[list[_Run], list[_Run]] = ([], [])
    with patamar_server(bundle.path, threads=threads) as server:
        for answering in policies:
            _load(server, answering, texts, connections, _WARM_UP_SECONDS)
        for _ in tqdm(range(rounds), desc="under load", unit="round", disable=None):
            for index in rng.permutation(2):
                runs[index].append(_load(server, policies[index], texts, connections, seconds))
    full, early = (np.array([run.sample.requests_per_second for run in side]) for side in runs)
    layers = [run.work.average_exit_layer for run in runs[1]]
    average = float(np.mean([layer for layer in layers if layer is not None]))
    ideal = manifest.layers / average
    speedup = ratio(early, full, rng)
    busy = [float(np.median([run.work.busy_share for run in side])) for side in runs]
    return LoadedEfficiency(
        connections=connections,
        full_depth_per_second=float(np.median(full)),
        early_exit_per_second=float(np.median(early)),
        full_depth_busy_share=busy[0],
        early_exit_busy_share=busy[1],
        average_layers=average,
        ideal_speedup=ideal,
        speedup=speedup,
        efficiency=speedup.scaled(1 / ideal),
        errors=sum(run.sample.errors for side in runs for run in side),
    )


def loaded_efficiency_table(found: LoadedEfficiency) -> str:
    """As a Markdown table."""
    return "\n".join(
        [
            "| connections | full depth, texts/s | early exit, texts/s | engine busy | layers "
            "| ideal speed-up | speed-up (95 % interval) | efficiency (95 % interval) | errors |",
            "|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
            f"| {found.connections} | {found.full_depth_per_second:.0f} "
            f"| {found.early_exit_per_second:.0f} | {found.full_depth_busy_share:.0%}, "
            f"{found.early_exit_busy_share:.0%} | {found.average_layers:.2f} "
            f"| {found.ideal_speedup:.2f} | {found.speedup} | {found.efficiency} "
            f"| {found.errors} |",
        ]
    )


def _load(
    server: ServerProcess,
    answering: Answering,
    texts: Sequence[str],
    connections: int,
    seconds: int,
) -> _Run:
    bodies = [answering.body(text) for text in texts]
    before = scrape(server)
    sample = closed_loop(
        answering.name, f"{server.url}{PATH}", bodies, connections=connections, seconds=seconds
    )
    return _Run(sample=sample, work=work_between(before, scrape(server)))
