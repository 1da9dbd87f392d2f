"""A lean HTTP client for load: many connections, one request at a time on each.

Why not httpx or aiohttp: the client runs on the processor of the server that it measures, and
httpx takes about as long for a request as a short text takes through the model. This one does no
more than write ready bytes and parse the answer with httptools, as uvicorn does.

Owner: one event loop. Callbacks run on it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import httptools

BROKEN = 0  # in place of a status: the connection broke, or could not be made


@dataclass(frozen=True, slots=True)
class Response:
    """Times in seconds of time.perf_counter; sent: when its bytes went to the connection."""

    status: int
    body: bytes
    sent: float
    finished: float


Finished = Callable[[Response], object]


def post_request(path: str, body: bytes) -> bytes:
    """The bytes of a POST of a JSON body."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class HttpClient:
    """Sends on an idle connection, on a new one, or, at the limit, when one is idle again."""

    def __init__(self, port: int, *, max_connections: int) -> None:
        self._port = port
        self._max_connections = max_connections
        self._loop = asyncio.get_running_loop()
        self._open: set[_Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._idle: list[_Connection] = []
        self._waiting: deque[tuple[bytes, Finished]] = deque()
        self._closed = False

    def send(self, request: bytes, finished: Finished) -> None:
        """Calls `finished` with the answer, once, whatever happens."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.lost:
                connection.send(request, finished)
                return
        if len(self._open) + len(self._connecting) < self._max_connections:
            task = self._loop.create_task(self._send_on_new(request, finished))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
        else:
            self._waiting.append((request, finished))

    async def ask(self, request: bytes) -> Response:
        """Sends and waits for the answer."""
        answer: asyncio.Future[Response] = self._loop.create_future()

        def finished(response: Response) -> None:
            if not answer.done():
                answer.set_result(response)

        self.send(request, finished)
        return await answer

    def close(self) -> None:
        """Closes all connections; what is not answered ends as broken, soon after."""
        self._closed = True
        for task in self._connecting:
            task.cancel()
        for connection in list(self._open):
            connection.close()
        while self._waiting:
            _, finished = self._waiting.popleft()
            now = time.perf_counter()
            finished(Response(BROKEN, b"", now, now))

    async def _send_on_new(self, request: bytes, finished: Finished) -> None:
        asked = time.perf_counter()
        try:
            _, protocol = await self._loop.create_connection(
                lambda: _Connection(self._free, self._open.discard), "127.0.0.1", self._port
            )
        except (OSError, asyncio.CancelledError) as error:
            finished(Response(BROKEN, b"", asked, time.perf_counter()))
            if isinstance(error, asyncio.CancelledError):
                raise
            self._send_waiting()
            return
        connection = protocol
        self._open.add(connection)
        connection.send(request, finished)

    def _free(self, connection: _Connection) -> None:
        if not connection.lost:
            self._idle.append(connection)
        self._send_waiting()

    def _send_waiting(self) -> None:
        if self._waiting and not self._closed:
            self.send(*self._waiting.popleft())


class _Connection(asyncio.Protocol):
    """One connection. free: called when it can take another request, or was lost at one."""

    def __init__(
        self, free: Callable[[_Connection], None], forget: Callable[[_Connection], None]
    ) -> None:
        self._free = free
        self._forget = forget
        self._transport: asyncio.Transport | None = None
        self._finished: Finished | None = None
        self._sent = 0.0
        self._body: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self.lost = False

    def send(self, request: bytes, finished: Finished) -> None:
        self._finished = finished
        self._sent = time.perf_counter()
        if self._transport is None or self.lost:
            self._finish(BROKEN)
        else:
            self._transport.write(request)

    def close(self) -> None:
        self.lost = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._forget(self)
        if self._finished is not None:
            self._finish(BROKEN)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive():
            self.close()
        self._finish(self._parser.get_status_code())

    def _finish(self, status: int) -> None:
        finished, self._finished = self._finished, None
        body, self._body = b"".join(self._body), []
        assert finished is not None, "a response that nobody asked for"
        finished(Response(status, body, self._sent, time.perf_counter()))
        self._free(self)
