"""A server in a process of its own, for as long as a measurement needs it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from multi_exit.errors import ConfigurationError

_START_SECONDS = 120
_STOP_SECONDS = 30
# Set on some machines for the sake of old OpenBLAS builds; they make a current numpy slow.
_SLOWING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProcess:
    """A server that is up, on this machine."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> str:
        """The body of a GET. Raises OSError where there is no answer, or not a good one."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as response:
            return str(response.read().decode())

    def resident_bytes(self) -> int:
        """Memory of the process that is in RAM (Linux)."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def patamar_server(bundle: Path, *, threads: int, **settings: object) -> Iterator[ServerProcess]:
    """Serves a bundle until the block ends. settings: of the service, by name.

    Raises ConfigurationError with the end of its log where it does not get ready.
    """
    port = free_port()
    command = [sys.executable, "-m", "cli.main", "serve", str(bundle), "--port", str(port)]
    named = {f"PATAMAR_{name.upper()}": str(value) for name, value in settings.items()}
    with running([*command, "--threads", str(threads)], port, named) as server:
        yield server


@contextlib.contextmanager
def running(
    command: Sequence[str],
    port: int,
    environment: Mapping[str, str] | None = None,
    ready_path: str = "/readyz",
) -> Iterator[ServerProcess]:
    """Any server that answers GET `ready_path` on `port` with 200 when it is ready.

    environment: beside our own. Raises ConfigurationError where it ends or does not get ready.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(environment or {}),
                start_new_session=True,
            )
        try:
            _wait_until_ready(process, f"http://127.0.0.1:{port}{ready_path}", log)
            yield ServerProcess(port=port, pid=process.pid)
        finally:
            _stop(process)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _SLOWING} | dict(more)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # Some servers leave workers behind, which would take processor time from the next one.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise ConfigurationError(
        f"a server did not get ready: {log.read_text(errors='replace')[-2000:]}"
    )
