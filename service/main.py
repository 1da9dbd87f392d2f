"""Runs the service until it is told to stop: one process, one event loop, one model."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Iterator

import uvicorn

from multi_exit.errors import ConfigurationError, PatamarError
from service.app import create_app
from service.served import Served
from service.settings import Settings

logger = logging.getLogger(__name__)

_BACKLOG = 2048
_KEEP_ALIVE_SECONDS = 75
# Seconds for which a thread may keep the interpreter while another wants it. The worker gives it
# up whenever a stage runs; with the default of 5 ms it would wait that long to start the next one.
_SWITCH_SECONDS = 0.0005


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or Ctrl-C, then answers what was accepted and returns.

    Raises PatamarError where it cannot start: bundle, provider, settings or address.
    """
    for package in ("service", "multi_exit", "uvicorn"):
        logging.getLogger(package).setLevel(settings.log_level.upper())
    sys.setswitchinterval(_SWITCH_SECONDS)
    failures: list[PatamarError] = []

    def start_failed(error: PatamarError) -> None:
        failures.append(error)
        server.should_exit = True

    app = create_app(settings, start_failed=start_failed)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.drain_seconds,
    )
    server = _Server(config, app.state.served)
    with _listening(settings) as listener, _signals_end_quietly():
        host, port = listener.getsockname()[:2]
        logger.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)
        server.run(sockets=[listener])
    if failures:
        raise failures[0]


class _Server(uvicorn.Server):
    """Says that it is draining before it closes what it listens on."""

    def __init__(self, config: uvicorn.Config, served: Served) -> None:
        super().__init__(config)
        self._served = served

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._served.readiness.drain()
        await super().shutdown(sockets)


@contextlib.contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    address = (settings.host, settings.port)
    try:
        listener = socket.create_server(address, family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {settings.host}:{settings.port} ({error.strerror}); choose another "
            "host or port"
        ) from error
    with listener:
        yield listener


@contextlib.contextmanager
def _signals_end_quietly() -> Iterator[None]:
    """uvicorn raises the signal that ended it once more; having drained, we return instead."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
