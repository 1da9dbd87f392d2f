"""Three times more than a server can take, for minutes: what it still answers, what it refuses,
that nothing it accepted is lost, and that its memory stays flat.

Open loop with Poisson arrivals. The client runs on the same machine and grows with the rate, which
takes processor time from the server; peak is measured with the same client for that reason.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from bench.serving.arrivals import poisson_arrivals
from bench.serving.drive import OK, closed_loop, open_loop
from bench.serving.latencies import Latencies
from bench.serving.questions import Answering, draw
from bench.serving.server_metrics import Scrape, ServerWork, scrape, work_between
from bench.serving.server_process import ServerProcess, patamar_server
from multi_exit.batch import bucket_of
from multi_exit.bundle import Bundle
from multi_exit.text_encoder import TextInput

_CONNECTIONS = 64  # enough to saturate the server
_SAMPLE_SECONDS = 0.25
_SETTLE_SECONDS = 60.0
TOO_MANY = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Resident MiB of the server: medians of the first and the last quarter of the overload, and
    the most. growth: last / first."""

    first_quarter_mib: float
    last_quarter_mib: float
    most_mib: float
    growth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overloaded:
    """Rates in texts a second. peaks: closed loop, before the overload and after it.

    goodput: answered during the overload, per second of it; its share is of the higher peak.

    statuses: responses by status as the client saw them, 0 for broken connections. server: the
    service's own accounts after everything had ended; its `lost` must be 0.
    """

    policy: str
    max_waiting_tokens: int
    peaks: tuple[float, float]
    rate: float
    seconds: float
    goodput: float
    goodput_share: float
    rejected_share: float
    answered: Latencies | None
    rejected: Latencies | None
    statuses: dict[int, int]
    server: ServerWork
    lost: int
    accounts_agree: bool
    memory: Memory
    client_cpu_share: float


def measure_overload(
    bundle: Bundle,
    answering: Answering,
    texts: Sequence[str],
    *,
    threads: int,
    waiting_seconds: float,
    times: float,
    seconds: float,
    peak_seconds: float,
    rng: np.random.Generator,
) -> Overloaded:
    """waiting_seconds: how much work may wait, as the time that it takes; 0 leaves the service's
    own limit. times: rate / peak before. seconds: of overload."""
    requests = [answering.request(text) for text in texts]
    settings = {}
    if waiting_seconds > 0:
        settings["max_waiting_tokens"] = _tokens_in(
            waiting_seconds,
            bundle,
            texts,
            requests,
            threads=threads,
            peak_seconds=peak_seconds,
        )
    with patamar_server(bundle.path, threads=threads, **settings) as server:
        before_peak = _peak_per_second(server, requests, peak_seconds)
        arrivals = poisson_arrivals(times * before_peak, seconds, rng)
        chosen = draw(requests, len(arrivals), rng)
        limit = json.loads(server.get("/model"))["limits"]["max_waiting_tokens"]
        before = scrape(server)
        with _watched_memory(server) as samples:
            load = open_loop(server.port, chosen, arrivals)
        work = work_between(before, _settled(server))
        peaks = (before_peak, _peak_per_second(server, requests, peak_seconds))
    good, refused = load.with_status(OK), load.with_status(TOO_MANY)
    # Only what was answered while load still came: the queue that is left over at the end is
    # answered at leisure and says nothing about overload.
    end = load.started + seconds
    goodput = sum(exchange.finished <= end for exchange in good) / seconds
    statuses = sorted({exchange.status for exchange in load.exchanges})
    return Overloaded(
        policy=answering.name,
        max_waiting_tokens=limit,
        peaks=peaks,
        rate=times * before_peak,
        seconds=seconds,
        goodput=goodput,
        goodput_share=goodput / max(peaks),
        rejected_share=len(refused) / len(arrivals),
        answered=load.latencies(),
        rejected=load.latencies(TOO_MANY),
        statuses={status: len(load.with_status(status)) for status in statuses},
        server=work,
        lost=work.lost,
        accounts_agree=work.answered == len(good) and work.rejected == len(refused),
        memory=memory_of(samples),
        client_cpu_share=load.client_cpu_share,
    )


def memory_of(samples: Sequence[int]) -> Memory:
    """Resident bytes in the order in which they were read. Raises ValueError for none."""
    if not samples:
        raise ValueError("memory was never looked at (a bug)")
    mib = np.asarray(samples) / 2**20
    quarter = max(1, len(mib) // 4)
    first, last = float(np.median(mib[:quarter])), float(np.median(mib[-quarter:]))
    return Memory(
        first_quarter_mib=first,
        last_quarter_mib=last,
        most_mib=float(mib.max()),
        growth=last / first,
    )


def overload_table(o: Overloaded) -> str:
    """As a Markdown table."""
    rows = [
        ("policy", o.policy),
        ("tokens that may wait", f"{o.max_waiting_tokens:,}"),
        ("peak before and after, texts/s", f"{o.peaks[0]:.0f}, {o.peaks[1]:.0f}"),
        ("sent, texts/s", f"{o.rate:.0f} for {o.seconds:.0f} s"),
        ("goodput, texts/s", f"{o.goodput:.0f} ({o.goodput_share:.1%} of peak)"),
        ("answered: p50, p99, ms", _shown(o.answered)),
        ("refused with 429", f"{o.rejected_share:.1%}"),
        ("refused: p50, p99, ms", _shown(o.rejected)),
        ("responses by status", ", ".join(f"{s}: {n:,}" for s, n in o.statuses.items())),
        ("lost", f"{o.lost} (client and server agree: {'yes' if o.accounts_agree else 'no'})"),
        (
            "memory, MiB: first quarter, last quarter, most",
            f"{o.memory.first_quarter_mib:.0f}, {o.memory.last_quarter_mib:.0f}, "
            f"{o.memory.most_mib:.0f}",
        ),
        ("client's processor", f"{o.client_cpu_share:.0%} of one core"),
    ]
    return "\n".join(["| | |", "|---|--:|", *(f"| {name} | {value} |" for name, value in rows)])


def _tokens_in(
    waiting_seconds: float,
    bundle: Bundle,
    texts: Sequence[str],
    requests: Sequence[bytes],
    *,
    threads: int,
    peak_seconds: float,
) -> int:
    """Padded tokens that a server works off in so much time, at least one longest text."""
    encoder, buckets = bundle.text_encoder(), bundle.manifest.length_buckets
    tokens = [bucket_of(len(encoder.encode(TextInput(text))), buckets) for text in texts]
    with patamar_server(bundle.path, threads=threads) as server:
        peak = _peak_per_second(server, requests, peak_seconds)
    return max(buckets[-1], round(waiting_seconds * peak * float(np.mean(tokens))))


def _peak_per_second(server: ServerProcess, requests: Sequence[bytes], seconds: float) -> float:
    """Texts a second, answered in a closed loop that saturates the server."""
    load = closed_loop(server.port, requests, connections=_CONNECTIONS, seconds=seconds)
    return len(load.with_status(OK)) / load.seconds


@contextmanager
def _watched_memory(server: ServerProcess) -> Iterator[list[int]]:
    samples = [server.resident_bytes()]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            samples.append(server.resident_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def _settled(server: ServerProcess) -> Scrape:
    """A scrape after every request that arrived has ended, or after a minute."""
    start = found = scrape(server)
    empty = Scrape(at=start.at - 1, samples={})
    while work_between(empty, found).lost and found.at - start.at < _SETTLE_SECONDS:
        time.sleep(0.2)
        found = scrape(server)
    return found


def _shown(found: Latencies | None) -> str:
    return "none" if found is None else f"{found.p50_ms:.1f}, {found.p99_ms:.1f}"
