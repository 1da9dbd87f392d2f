"""What happens around every route: accounts, API key, early refusal, body limit.

Plain ASGI: behind Starlette's BaseHTTPMiddleware a route never learns that its client hung up.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import BodyTooLarge, ServiceError, Unauthorised, problem_of
from service.metrics import FinishedAs, Metrics
from service.responses import problem_kind, problem_response

CLASSIFY = "/classify"
MODEL = "/model"
# /metrics knows any other address as "other", so that a scan cannot make labels.
ROUTES = frozenset({CLASSIFY, MODEL, "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"})
_KEPT = frozenset({CLASSIFY, MODEL})  # addresses that want the API key; probes never do
_CLIENT_GONE = 499
# A client that is refused half-way may go on sending for so long before it reads our answer.
_LINGER_SECONDS = 10.0
_LINGER_BODIES = 16
# Bodies that arrive with their headers, or as good as.
_SMALL = 16 * 1024


class Accounts:
    """Counts and times requests. Received = answered + failed + cancelled + rejected."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        route = scope["path"] if scope["path"] in ROUTES else "other"
        classifies = route == CLASSIFY and scope["method"] == "POST"
        if classifies:
            self._metrics.request_received()
        # What an unexpected error or a cancelled task comes to; a response says otherwise.
        status = 500

        async def noting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting_send)
        finally:
            if status != _CLIENT_GONE:
                self._metrics.responded(status=status, route=route)
            if classifies:
                self._finish(scope, status)
                self._metrics.request_took(time.perf_counter() - started)

    def _finish(self, scope: Scope, status: int) -> None:
        kind = problem_kind(scope)
        if kind is not None:
            self._metrics.request_finished(kind.outcome, kind.name)
        else:
            outcome: FinishedAs = "answered" if status < 400 else "failed"
            self._metrics.request_finished(outcome, None)


class ApiKey:
    """Answers 401 where an address wants the key and does not get it."""

    def __init__(self, app: ASGIApp, *, key: str) -> None:
        self._app = app
        self._wanted = b"bearer " + key.encode("utf-8")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in _KEPT and not self._allows(scope):
            response = problem_response(scope, problem_of(Unauthorised()))
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allows(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name == b"authorization":
                # The scheme's case does not matter (RFC 9110); the key's does.
                scheme, _, key = value.partition(b" ")
                given = scheme.lower() + b" " + key.strip()
                return hmac.compare_digest(given, self._wanted)
        return False


class EarlyRefusal:
    """Answers what cannot be taken before its body is read: refusing must cost next to nothing.

    refusal: why not even one short text can be taken now; None where it can.
    """

    def __init__(self, app: ASGIApp, *, refusal: Callable[[], ServiceError | None]) -> None:
        self._app = app
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == CLASSIFY and scope["method"] == "POST":
            # A large body is still on its way, and a client that sends would not hear us.
            declared = _declared_length(scope)
            refusal = self._refusal() if declared is not None and declared <= _SMALL else None
            if refusal is not None:
                await problem_response(scope, problem_of(refusal))(scope, receive, send)
                return
        await self._app(scope, receive, send)


class BodyLimit:
    """Answers 413 as soon as a body is known to be too large, declared or not."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _LimitedBody(self._max_bytes, receive, send)
        declared = _declared_length(scope)
        if declared is not None and declared > self._max_bytes:
            response = problem_response(scope, problem_of(body.exceeded(declared)))
            await response(scope, receive, body.send)
            return
        await self._app(scope, body.receive, body.send)


class _LimitedBody:
    """One request's body. Stops reading at the limit; then lingers so that the answer is read.

    Closing at once would reset the connection, and a client that still sends would see that
    instead of its 413. What comes while lingering is thrown away.
    """

    def __init__(self, max_bytes: int, receive: Receive, send: Send) -> None:
        self._max_bytes = max_bytes
        self._receive = receive
        self._send = send
        self._received = 0
        self._lingers = False

    def exceeded(self, received: int | None) -> BodyTooLarge:
        self._lingers = True
        return BodyTooLarge(
            f"A body may have {self._max_bytes} bytes; send the texts in several requests.",
            limit=self._max_bytes,
            received=received,
            setting="max_body_bytes",
        )

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            if self._received > self._max_bytes and not self._lingers:
                raise self.exceeded(None)
        return message

    async def send(self, message: Message) -> None:
        if not self._lingers:
            await self._send(message)
        elif message["type"] == "http.response.start":
            headers = [*message["headers"], (b"connection", b"close")]
            await self._send({**message, "headers": headers})
        elif message.get("more_body", False):
            await self._send(message)
        else:
            await self._send({**message, "more_body": True})
            await self._linger()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _linger(self) -> None:
        left = _LINGER_BODIES * self._max_bytes
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                while left > 0:
                    message = await self._receive()
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return
                    left -= len(message.get("body", b""))
        except TimeoutError:
            return


def _declared_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)  # the server has refused anything but digits
    return None
