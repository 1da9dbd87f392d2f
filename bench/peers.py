"""Serves the same texts from Patamar and from the plainest peer, in interleaved rounds.

Every server runs on the same machine with the same number of threads and stays up all the time;
one at a time is asked. The peer's model has the size of ours and random weights: it is timed,
its answers are not looked at.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from bench.interleave import Ratio, ratio
from bench.load import LoadSample, closed_loop
from multi_exit.bundle import BundleManifest, OperatingPoint
from multi_exit.errors import ConfigurationError

PEER = "transformers pipeline"
_START_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way of answering: a server's port, and the knobs that go with every text."""

    name: str
    port: int
    knobs: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One contender against the peer at one number of connections; ratios of the same round.

    throughput: contender / peer, more is better. p50, p99: contender / peer, less is better.
    """

    name: str
    connections: int
    throughput: Ratio
    p50: Ratio
    p99: Ratio


def one_point_operating_point(manifest: BundleManifest) -> OperatingPoint:
    """The fastest point within one point of the accuracy of full depth, on the calibration split.

    Raises ConfigurationError for a bundle calibrated without labels.
    """
    points = [
        point
        for point in manifest.operating_points
        if point.accuracy is not None
        and point.full_depth_accuracy is not None
        and point.accuracy >= point.full_depth_accuracy - 0.01
    ]
    if not points:
        raise ConfigurationError(
            f"bundle {manifest.name!r} has no operating point within one point of full depth"
        )
    return max(points, key=lambda point: point.speedup)


def measure_peers(
    contenders: Sequence[Contender],
    texts: Sequence[str],
    *,
    connections: Sequence[int],
    rounds: int,
    seconds: int,
    seed: int = 0,
) -> list[LoadSample]:
    """Raw samples: every contender once a round at every number of connections, order drawn."""
    rng = np.random.default_rng(seed)
    samples = []
    total = rounds * len(connections) * len(contenders)
    with tqdm(total=total, desc="peers", unit="run", disable=None) as progress:
        for round_ in range(rounds + 1):
            for count in connections:
                for index in rng.permutation(len(contenders)):
                    contender = contenders[index]
                    bodies = [_body(text, contender.knobs) for text in texts]
                    sample = closed_loop(
                        contender.name,
                        f"http://127.0.0.1:{contender.port}/classify",
                        bodies,
                        connections=count,
                        # The first round warms up and is dropped.
                        seconds=seconds if round_ else 2,
                    )
                    if round_:
                        samples.append(sample)
                        progress.update()
    return samples


def compare(samples: Sequence[LoadSample], seed: int = 0) -> list[Comparison]:
    """Each contender against the peer, from samples in the order in which rounds were run."""
    rng = np.random.default_rng(seed)
    result = []
    for connections in sorted({sample.connections for sample in samples}):
        at = [sample for sample in samples if sample.connections == connections]
        for name in dict.fromkeys(s.server for s in at if s.server != PEER):
            ours = [sample for sample in at if sample.server == name]
            theirs = [sample for sample in at if sample.server == PEER]
            ratios = {
                field: ratio(
                    np.array([getattr(sample, field) for sample in ours]),
                    np.array([getattr(sample, field) for sample in theirs]),
                    rng,
                )
                for field in ("requests_per_second", "p50_ms", "p99_ms")
            }
            result.append(
                Comparison(
                    name=name,
                    connections=connections,
                    throughput=ratios["requests_per_second"],
                    p50=ratios["p50_ms"],
                    p99=ratios["p99_ms"],
                )
            )
    return result


def comparison_table(comparisons: Sequence[Comparison]) -> str:
    """The comparisons as a Markdown table."""
    lines = [
        "| against the pipeline | connections | throughput | p50 | p99 |",
        "|---|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {c.name} | {c.connections} | {_shown(c.throughput)} | {_shown(c.p50)} "
        f"| {_shown(c.p99)} |"
        for c in comparisons
    ]
    return "\n".join(lines)


def comparison_json(
    samples: Sequence[LoadSample], comparisons: Sequence[Comparison]
) -> dict[str, object]:
    """Raw samples and ratios as plain data."""
    return {
        "samples": [asdict(sample) for sample in samples],
        "comparisons": [asdict(comparison) for comparison in comparisons],
    }


@contextmanager
def running(command: Sequence[str], port: int, log: Path) -> Iterator[None]:
    """A server process that is ready, stopped at the end. Raises ConfigurationError if it dies."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait_until_ready(process, port, log)
            yield
        finally:
            process.terminate()
            process.wait(timeout=30)


def patamar_command(bundle: Path, port: int, threads: int) -> list[str]:
    """Command that serves a bundle."""
    command = [sys.executable, "-m", "cli.main", "serve", str(bundle), "--port", str(port)]
    return [*command, "--threads", str(threads)]


def pipeline_command(model_folder: Path, port: int, threads: int) -> list[str]:
    """Command that serves the peer."""
    return [
        sys.executable,
        "-m",
        "bench.pipeline_server",
        str(model_folder),
        str(port),
        str(threads),
    ]


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(_START_SECONDS * 5):
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise ConfigurationError(
        f"a server did not get ready: {log.read_text(errors='replace')[-2000:]}"
    )


def _body(text: str, knobs: dict[str, float]) -> bytes:
    return json.dumps({"inputs": text, **knobs}).encode()


def _shown(value: Ratio) -> str:
    return f"{value.median:.2f} ({value.low:.2f} to {value.high:.2f})"
