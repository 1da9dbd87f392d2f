"""More than full depth can take, for a while: whether requests slide to faster certified points
instead of being refused, how many labels that changes, and how soon the default is back.

Open loop with Poisson arrivals at a multiple of the capacity at full depth, which a closed loop of
the same client measures first on a server that does not slide.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.serving.arrivals import poisson_arrivals
from bench.serving.drive import OK, Load, closed_loop, open_loop
from bench.serving.latencies import Latencies
from bench.serving.questions import Answering, draw, full_depth
from bench.serving.server_process import ServerProcess, patamar_server
from multi_exit.bundle import Bundle
from multi_exit.calibration import FULL_DEPTH
from multi_exit.errors import ConfigurationError
from multi_exit.policy import Policy

_CONNECTIONS = 32
_LONGEST_BACK_SECONDS = 60.0
_DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliding:
    """Rates in texts a second. policies: answers by the operating point that gave them.

    epsilon: the worst that slide_to is certified for, of labels changed. changed: share of answers
    with another label than full depth gives the same text. back_seconds: from the end of the load
    until a request got the default again, asked ten times a second; None where it never did.
    """

    slide_to: str
    epsilon: float
    capacity: float
    rate: float
    seconds: float
    answered: int
    refused: int
    other_errors: int
    policies: dict[str, int]
    changed: float
    latencies: Latencies | None
    back_seconds: float | None
    client_cpu_share: float


def measure_sliding(
    bundle: Bundle,
    texts: Sequence[str],
    *,
    slide_to: str | None,
    threads: int,
    times: float,
    seconds: float,
    peak_seconds: float,
    rng: np.random.Generator,
) -> Sliding:
    """From full depth to the point `slide_to`, or to the fastest that is certified for consistency.

    Raises ConfigurationError where there is no such point.
    """
    point, epsilon = _worst(bundle, slide_to)
    deep = full_depth(bundle.manifest)
    with patamar_server(bundle.path, threads=threads, default_point=FULL_DEPTH) as server:
        capacity = _capacity(server, [deep.request(text) for text in texts], peak_seconds)
    nothing = Answering(name=_DEFAULT, policy=Policy.constant(0.0, 1), threshold=None)
    arrivals = poisson_arrivals(times * capacity, seconds, rng)
    asked = draw(texts, len(arrivals), rng)
    settings = {"default_point": FULL_DEPTH, "slide_to_point": point}
    with patamar_server(bundle.path, threads=threads, **settings) as server:
        load = open_loop(
            server.port, [nothing.request(text) for text in asked], arrivals, keep_bodies=True
        )
        back = _seconds_until_default(server, nothing.request(texts[0]))
        found = _answers(load)
        changed = _changed(server, deep, asked, found)
    statuses = Counter(exchange.status for exchange in load.exchanges)
    return Sliding(
        slide_to=point,
        epsilon=epsilon,
        capacity=capacity,
        rate=times * capacity,
        seconds=seconds,
        answered=statuses[OK],
        refused=statuses[429],
        other_errors=len(load.exchanges) - statuses[OK] - statuses[429],
        policies=dict(Counter(policy for policy, _ in found.values())),
        changed=changed,
        latencies=load.latencies(),
        back_seconds=back,
        client_cpu_share=load.client_cpu_share,
    )


def sliding_table(s: Sliding) -> str:
    """As a Markdown table."""
    back = "never" if s.back_seconds is None else f"{s.back_seconds:.1f} s"
    shares = ", ".join(f"{name}: {n / s.answered:.1%}" for name, n in s.policies.items())
    shown = "none" if s.latencies is None else f"{s.latencies.p50_ms:.1f}, {s.latencies.p99_ms:.1f}"
    rows = [
        ("capacity at full depth, texts/s", f"{s.capacity:.0f}"),
        ("sent, texts/s", f"{s.rate:.0f} for {s.seconds:.0f} s"),
        ("answered, refused, other errors", f"{s.answered:,}, {s.refused:,}, {s.other_errors:,}"),
        ("answered under", shares),
        ("other labels than at full depth", f"{s.changed:.2%} (certified: {s.epsilon:.1%})"),
        ("p50, p99, ms", shown),
        ("default again after", back),
        ("client's processor", f"{s.client_cpu_share:.0%} of one core"),
    ]
    return "\n".join(["| | |", "|---|--:|", *(f"| {name} | {value} |" for name, value in rows)])


def _worst(bundle: Bundle, slide_to: str | None) -> tuple[str, float]:
    """The point to slide to, and the share of labels that it is certified to change at most."""
    certified = {
        point.name: (
            point.speedup,
            min(c.epsilon for c in point.certificates if c.kind == "consistency"),
        )
        for point in bundle.manifest.operating_points
        if any(c.kind == "consistency" and c.label is None for c in point.certificates)
    }
    if not certified or (slide_to is not None and slide_to not in certified):
        raise ConfigurationError(
            f"sliding needs a point that is certified for consistency; this bundle has "
            f"{', '.join(certified) or 'none'}"
        )
    name = slide_to or max(certified, key=lambda name: certified[name][0])
    return name, certified[name][1]


def _capacity(server: ServerProcess, requests: Sequence[bytes], seconds: float) -> float:
    load = closed_loop(server.port, requests, connections=_CONNECTIONS, seconds=seconds)
    return len(load.with_status(OK)) / load.seconds


def _seconds_until_default(server: ServerProcess, request: bytes) -> float | None:
    started = time.perf_counter()
    while (passed := time.perf_counter() - started) < _LONGEST_BACK_SECONDS:
        answer = closed_loop(server.port, [request], connections=1, keep_bodies=True)
        if [kind for kind, _ in _answers(answer, member="kind").values()] == [_DEFAULT]:
            return passed
        time.sleep(0.1)
    return None


def _answers(load: Load, member: str = "name") -> dict[int, tuple[str, str]]:
    """By request: a member of its policy, and its label; those answered well."""
    found = {}
    for exchange in load.with_status(OK):
        document = json.loads(exchange.body)
        found[exchange.index] = (document["policy"][member], document["results"][0]["label"])
    return found


def _changed(
    server: ServerProcess,
    deep: Answering,
    asked: Sequence[str],
    found: dict[int, tuple[str, str]],
) -> float:
    """Share of answers whose label full depth does not give the same text."""
    distinct = sorted({asked[index] for index in found})
    load = closed_loop(
        server.port, [deep.request(text) for text in distinct], connections=8, keep_bodies=True
    )
    at_depth = _answers(load, member="kind")
    labels = {distinct[index]: label for index, (_, label) in at_depth.items()}
    differs = [labels[asked[index]] != label for index, (_, label) in found.items()]
    return float(np.mean(differs)) if differs else 0.0
