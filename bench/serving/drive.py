"""Drives a server: at given times (open loop), or as fast as it answers (closed loop).

In an open loop a request is sent when its time has come, however late the server is with others,
and its latency counts from that time: a stall is then felt by all who came during it, not by one.
Timers of the event loop are a millisecond or two late, which counts as latency too.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import uvloop
from numpy.typing import NDArray

from bench.serving.http_client import HttpClient, Response
from bench.serving.latencies import Latencies, latencies

OK = 200
_GRACE_SECONDS = 60.0
_SPARE_FILES = 200


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer. index: which request; times in seconds of one clock.

    due: when it was to be sent; finished: when its answer was whole. body: empty unless kept.
    """

    index: int
    due: float
    sent: float
    finished: float
    status: int
    body: bytes

    @property
    def seconds(self) -> float:
        """Latency, from when it was due."""
        return self.finished - self.due


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one drive gave. started: when its time 0 was; seconds: from then to the last answer.

    client_cpu_share: processor time that this client took / seconds.
    late_p99_ms: by how much requests were sent late, 99th percentile; large where the client, or
    its number of connections, was too small.
    """

    exchanges: tuple[Exchange, ...]
    started: float
    seconds: float
    client_cpu_share: float
    late_p99_ms: float

    def with_status(self, status: int) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.status == status]

    @property
    def errors(self) -> int:
        """Requests without a good answer."""
        return sum(exchange.status != OK for exchange in self.exchanges)

    def latencies(self, status: int = OK) -> Latencies | None:
        return latencies([exchange.seconds for exchange in self.with_status(status)])


def open_loop(
    port: int,
    requests: Sequence[bytes],
    arrivals: NDArray[np.float64],
    *,
    keep_bodies: bool = False,
) -> Load:
    """Sends requests[i] at arrivals[i] seconds from now, ascending, over as many connections as
    it takes. Waits a minute at most for what is under way after the last; the rest is broken."""
    return uvloop.run(_open_loop(port, requests, arrivals, keep_bodies))


def closed_loop(
    port: int,
    requests: Sequence[bytes],
    *,
    connections: int,
    seconds: float | None = None,
    keep_bodies: bool = False,
) -> Load:
    """Sends the next request on each connection as soon as the last was answered.

    seconds: goes round and round the requests for so long; without it, each is sent once.
    """
    return uvloop.run(_closed_loop(port, requests, connections, seconds, keep_bodies))


async def _open_loop(
    port: int, requests: Sequence[bytes], arrivals: NDArray[np.float64], keep: bool
) -> Load:
    client = HttpClient(port, max_connections=_most_connections())
    record = _Record(keep=keep)
    times = arrivals.tolist()
    record.start()
    for index, (request, arrival) in enumerate(zip(requests, times, strict=True)):
        due = record.started + arrival
        while (wait := due - time.perf_counter()) > 0:  # noqa: ASYNC110
            # libuv counts whole milliseconds and rounds: less would often wake too early.
            await asyncio.sleep(wait + 0.0005)
        if index % 50 == 0:
            await asyncio.sleep(0)  # where many are due at once, answers are read in between
        record.ask(client, index, request, due=due)
    await record.wait_for(len(times))
    client.close()
    await asyncio.sleep(0.05)  # lost connections are told on a later turn of the loop
    return record.load()


async def _closed_loop(
    port: int, requests: Sequence[bytes], connections: int, seconds: float | None, keep: bool
) -> Load:
    client = HttpClient(port, max_connections=connections)
    record = _Record(keep=keep)
    turns = _turns(len(requests), forever=seconds is not None)
    record.start()
    end = None if seconds is None else record.started + seconds

    async def one_connection() -> None:
        for index in turns:
            due = time.perf_counter()
            if end is not None and due >= end:
                return
            record.note(index, due, await client.ask(requests[index]))

    await asyncio.gather(*(one_connection() for _ in range(connections)))
    client.close()
    return record.load()


def _turns(count: int, *, forever: bool) -> Iterator[int]:
    while True:
        yield from range(count)
        if not forever:
            return


class _Record:
    """Exchanges as they end, and what the client took."""

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._exchanges: list[Exchange] = []
        self._changed = asyncio.Event()
        self.started = 0.0
        self._cpu = 0.0

    def start(self) -> None:
        self._cpu = time.process_time()
        self.started = time.perf_counter()

    def ask(self, client: HttpClient, index: int, request: bytes, *, due: float) -> None:
        client.send(request, lambda response: self.note(index, due, response))

    def note(self, index: int, due: float, response: Response) -> None:
        body = response.body if self._keep else b""
        self._exchanges.append(
            Exchange(index, due, response.sent, response.finished, response.status, body)
        )
        self._changed.set()

    async def wait_for(self, count: int) -> None:
        end = time.perf_counter() + _GRACE_SECONDS
        while len(self._exchanges) < count and (left := end - time.perf_counter()) > 0:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                return

    def load(self) -> Load:
        ends = [exchange.finished for exchange in self._exchanges] or [time.perf_counter()]
        seconds = max(ends) - self.started
        late = latencies([max(0.0, e.sent - e.due) for e in self._exchanges])
        return Load(
            exchanges=tuple(self._exchanges),
            started=self.started,
            seconds=seconds,
            client_cpu_share=(time.process_time() - self._cpu) / seconds,
            late_p99_ms=0.0 if late is None else late.p99_ms,
        )


def _most_connections() -> int:
    """As many as this process may open files, less a few."""
    return max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FILES)
