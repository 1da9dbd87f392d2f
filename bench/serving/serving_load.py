"""What a server takes: closed loop, open loop, and the highest rate within a limit on the p99.

Real texts at their real lengths, one a request. Closed loop by wrk; open loop with Poisson
arrivals, latency from when a request was due (bench/serving/drive.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from bench.serving.arrivals import poisson_arrivals
from bench.serving.drive import closed_loop, open_loop
from bench.serving.latencies import Latencies
from bench.serving.load import closed_loop as closed_loop_by_wrk
from bench.serving.questions import PATH, Answering, draw
from bench.serving.rate_search import RateSearch, RateTrial, search_rate
from bench.serving.server_metrics import scrape, work_between
from bench.serving.server_process import ServerProcess

_WARM_UP_SECONDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """One number of connections, each asking anew when it is answered."""

    connections: int
    per_second: float
    p50_ms: float
    p99_ms: float
    errors: int
    busy_share: float
    rows_a_batch: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """One run at one rate. latencies: None where nothing was answered.

    late_p99_ms, client_cpu_share: see bench.serving.drive.Load; a client that is late
    measured itself.
    """

    rate: float
    latencies: Latencies | None
    errors: int
    busy_share: float
    average_exit_layer: float | None
    rows_a_batch: float | None
    client_cpu_share: float
    late_p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLoad:
    """Everything of one policy. unloaded: one text at a time, the next when it is answered."""

    policy: str
    unloaded: Latencies
    closed: tuple[ClosedLoop, ...]
    search: RateSearch
    open: tuple[OpenLoop, ...]

    @property
    def at_best(self) -> OpenLoop | None:
        """The slowest of the runs at the highest rate that kept the limit."""
        best = self.search.best
        runs = [run for run in self.open if best is not None and run.rate == best.rate]
        return max(runs, key=_p99, default=None)


def measure_serving_load(
    server: ServerProcess,
    answering: Answering,
    texts: Sequence[str],
    *,
    connections: Sequence[int],
    limit_ms: float,
    rounds: int,
    seconds: int,
    most_trials: int,
    rng: np.random.Generator,
) -> ServingLoad:
    """seconds: of each run; rounds: runs at each rate, whose median p99 decides."""
    requests = [answering.request(text) for text in texts]
    closed_loop(server.port, requests, connections=8, seconds=_WARM_UP_SECONDS)
    unloaded = closed_loop(server.port, requests, connections=1, seconds=seconds).latencies()
    assert unloaded is not None, "a server that is ready answers"
    closed = tuple(
        _closed(server, answering, texts, count, seconds)
        for count in tqdm(connections, desc="closed loop", disable=None)
    )
    runs: list[OpenLoop] = []
    with tqdm(desc=f"open loop, {answering.name}", unit="rate", disable=None) as progress:

        def try_rate(rate: float) -> RateTrial:
            tried = [
                _open(server, answering, texts, rate, seconds=seconds, rng=rng)
                for _ in range(rounds)
            ]
            runs.extend(tried)
            progress.update()
            p99 = float(np.median([_p99(run) for run in tried]))
            return RateTrial(
                rate=rate,
                p99_ms=p99 if math.isfinite(p99) else None,
                errors=sum(run.errors for run in tried),
            )

        start = max(1.0, max(run.per_second for run in closed) / 2)
        search = search_rate(try_rate, limit_ms=limit_ms, start=start, most_trials=most_trials)
    return ServingLoad(
        policy=answering.name, unloaded=unloaded, closed=closed, search=search, open=tuple(runs)
    )


def serving_load_table(found: Sequence[ServingLoad]) -> str:
    """As Markdown tables."""
    lines = [
        "| closed loop | connections | texts/s | p50, ms | p99, ms | engine busy | errors |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for load in found:
        lines += [
            f"| {load.policy} | {c.connections} | {c.per_second:.0f} | {c.p50_ms:.2f} "
            f"| {c.p99_ms:.2f} | {c.busy_share:.0%} | {c.errors} |"
            for c in load.closed
        ]
    lines += [
        "",
        "| open loop | unloaded p50, ms | p99 limit, ms | texts/s within it | p50, ms | p99, ms "
        "| engine busy | client busy |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for load in found:
        start = f"| {load.policy} | {load.unloaded.p50_ms:.2f} | {load.search.limit_ms:g} "
        at_best = load.at_best
        if at_best is None or at_best.latencies is None:
            lines.append(f"{start}| none | | | | |")
        else:
            lines.append(
                f"{start}| {at_best.rate:.0f} | {at_best.latencies.p50_ms:.2f} "
                f"| {at_best.latencies.p99_ms:.2f} | {at_best.busy_share:.0%} "
                f"| {at_best.client_cpu_share:.0%} |"
            )
    return "\n".join(lines)


def _closed(
    server: ServerProcess,
    answering: Answering,
    texts: Sequence[str],
    connections: int,
    seconds: int,
) -> ClosedLoop:
    before = scrape(server)
    sample = closed_loop_by_wrk(
        answering.name,
        f"{server.url}{PATH}",
        [answering.body(text) for text in texts],
        connections=connections,
        seconds=seconds,
    )
    work = work_between(before, scrape(server))
    return ClosedLoop(
        connections=connections,
        per_second=sample.requests_per_second,
        p50_ms=sample.p50_ms,
        p99_ms=sample.p99_ms,
        errors=sample.errors,
        busy_share=work.busy_share,
        rows_a_batch=work.rows_a_batch,
    )


def _open(
    server: ServerProcess,
    answering: Answering,
    texts: Sequence[str],
    rate: float,
    *,
    seconds: float,
    rng: np.random.Generator,
) -> OpenLoop:
    arrivals = poisson_arrivals(rate, seconds, rng)
    requests = [answering.request(text) for text in draw(texts, len(arrivals), rng)]
    before = scrape(server)
    load = open_loop(server.port, requests, arrivals)
    work = work_between(before, scrape(server))
    return OpenLoop(
        rate=rate,
        latencies=load.latencies(),
        errors=load.errors,
        busy_share=work.busy_share,
        average_exit_layer=work.average_exit_layer,
        rows_a_batch=work.rows_a_batch,
        client_cpu_share=load.client_cpu_share,
        late_p99_ms=load.late_p99_ms,
    )


def _p99(run: OpenLoop) -> float:
    return math.inf if run.latencies is None else run.latencies.p99_ms
