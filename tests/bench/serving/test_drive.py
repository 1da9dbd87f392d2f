"""Load against a tiny HTTP server whose times are known: the client counts right and loses none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bench.serving.drive import closed_loop, open_loop
from bench.serving.http_client import BROKEN, post_request

_STALL_SECONDS = 0.5


class _Echo:
    """Answers the body of each request, one at a time; `stall`, `refuse` and `hang up` differ."""

    def __init__(self) -> None:
        self.connections = 0
        self._turn = asyncio.Lock()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                async with self._turn:
                    if body == b"stall":
                        await asyncio.sleep(_STALL_SECONDS)
                if body == b"hang up":
                    return
                status = b"429 No" if body == b"refuse" else b"200 OK"
                answer = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s"
                writer.write(answer % (status, len(body), body))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@contextmanager
def _echo() -> Iterator[tuple[int, _Echo]]:
    loop, echo = asyncio.new_event_loop(), _Echo()
    server = loop.run_until_complete(asyncio.start_server(echo.serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1], echo
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()


def _requests(*bodies: str) -> list[bytes]:
    return [post_request("/classify", body.encode()) for body in bodies]


def test_in_an_open_loop_a_stall_is_felt_by_all_who_came_during_it() -> None:
    requests = _requests("stall", *["quick"] * 40)
    arrivals = np.linspace(0, 0.4, 41)
    with _echo() as (port, echo):
        load = open_loop(port, requests, arrivals)
        assert echo.connections == 41  # nobody waited for another's answer to be sent
    assert len(load.with_status(200)) == 41
    # A client that waited for one answer before the next request would count one long latency.
    slow = [e for e in load.exchanges if e.seconds > _STALL_SECONDS - arrivals[e.index] - 0.01]
    assert len(slow) == 41
    assert load.late_p99_ms < 1000 * _STALL_SECONDS


def test_latency_counts_from_when_a_request_was_due() -> None:
    arrivals = np.array([0.0, 0.1, 0.2])
    with _echo() as (port, _):
        load = open_loop(port, _requests("a", "b", "c"), arrivals, keep_bodies=True)
    assert {e.index: e.body for e in load.exchanges} == {0: b"a", 1: b"b", 2: b"c"}
    for exchange in load.exchanges:
        assert (
            exchange.due - load.started == arrivals[exchange.index]
            or abs(exchange.due - load.started - arrivals[exchange.index]) < 1e-9
        )
        assert exchange.due <= exchange.sent <= exchange.finished


def test_every_request_ends_in_an_answer_a_refusal_or_a_broken_connection() -> None:
    bodies = ["a", "refuse", "hang up", "b", "hang up", "refuse", "c"] * 5
    with _echo() as (port, _):
        for load in (
            open_loop(port, _requests(*bodies), np.linspace(0, 0.2, len(bodies))),
            closed_loop(port, _requests(*bodies), connections=3),
        ):
            assert sorted(e.index for e in load.exchanges) == list(range(len(bodies)))
            assert len(load.with_status(200)) == 15
            assert len(load.with_status(429)) == 10
            assert len(load.with_status(BROKEN)) == 10
            assert load.errors == 20


def test_a_closed_loop_keeps_to_its_connections_and_asks_each_request_once() -> None:
    bodies = [str(number) for number in range(50)]
    with _echo() as (port, echo):
        load = closed_loop(port, _requests(*bodies), connections=4, keep_bodies=True)
        assert echo.connections == 4
    assert {e.index: e.body.decode() for e in load.exchanges} == dict(enumerate(bodies))


def test_a_closed_loop_of_a_given_time_goes_round_and_ends() -> None:
    with _echo() as (port, _):
        load = closed_loop(port, _requests("a", "b"), connections=2, seconds=0.3)
    assert {e.index for e in load.exchanges} == {0, 1}
    assert len(load.exchanges) > 10
    assert load.errors == 0
    assert 0.3 <= load.seconds < 5


def test_nothing_to_send_takes_no_time_and_has_no_latency() -> None:
    with _echo() as (port, _):
        load = open_loop(port, [], np.zeros(0))
    assert load.exchanges == ()
    assert load.latencies() is None
    assert 0 < load.seconds < 1
    assert load.client_cpu_share <= 2


def test_nobody_listening_is_an_error_of_every_request() -> None:
    with _echo() as (port, _):
        pass
    load = open_loop(port, _requests("a", "b"), np.array([0.0, 0.01]))
    assert [e.status for e in load.exchanges] == [BROKEN, BROKEN]
    assert load.latencies() is None
