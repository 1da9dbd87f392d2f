"""Closed-loop HTTP load by `wrk` (Debian package `wrk`): every connection asks one text at a time.

The client runs on the machine of the server and takes some of its processor; it does so alike
for every server that is measured.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from multi_exit.errors import ConfigurationError

_SCRIPT = Path(__file__).with_name("wrk_post.lua")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """One run of load against one server. Latencies in milliseconds; errors: not 2xx, or broken."""

    server: str
    connections: int
    seconds: float
    requests: int
    errors: int
    requests_per_second: float
    p50_ms: float
    p99_ms: float


def closed_loop(
    server: str, url: str, bodies: Sequence[bytes], *, connections: int, seconds: int
) -> LoadSample:
    """Posts the JSON bodies in turn for `seconds` over `connections` connections.

    Raises ConfigurationError where wrk is missing or fails.
    """
    wrk = shutil.which("wrk")
    if wrk is None:
        raise ConfigurationError("wrk is missing; install it, on Debian: apt-get install wrk")
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "bodies.jsonl"
        texts.write_bytes(b"\n".join(bodies) + b"\n")
        command = [wrk, "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s"]
        command += ["-s", str(_SCRIPT), url, "--", str(texts)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)
    if done.returncode != 0 or line is None:
        raise ConfigurationError(f"wrk failed against {url}: {done.stderr or done.stdout}")
    found = json.loads(line)
    return LoadSample(
        server=server,
        connections=connections,
        seconds=found["seconds"],
        requests=found["requests"],
        errors=found["errors"],
        requests_per_second=found["requests"] / found["seconds"],
        p50_ms=found["p50_ms"],
        p99_ms=found["p99_ms"],
    )
