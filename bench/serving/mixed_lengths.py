"""What long texts do to short ones: the p99 of short texts with long ones among them and without.

Open loop. Short texts are the same and come at the same times in both; the long ones come beside
them, by a Poisson process of their own. Both in every round, in an order drawn anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from bench.interleave import Ratio, ratio
from bench.serving.arrivals import poisson_arrivals
from bench.serving.drive import Exchange, Load, closed_loop, open_loop
from bench.serving.latencies import Latencies, latencies
from bench.serving.questions import Answering, draw, lengthened
from bench.serving.server_process import ServerProcess
from multi_exit.text_encoder import TextEncoder, TextInput

LONG_SHARE = 0.1
TIMES_LONGER = 20
_LONG_TEXTS = 100
_CONNECTIONS = 32  # enough to saturate the server


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Mean tokens as the model runs them; cut: share of the long texts cut to its length."""

    short_tokens: float
    long_tokens: float
    long_cut: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedLengths:
    """capacity: mixed texts a second, closed loop. *_rate: texts a second that were sent.

    short_alone, short_mixed, long: all rounds together. p99: with long texts / without.
    """

    policy: str
    lengths: Lengths
    capacity: float
    short_rate: float
    long_rate: float
    short_alone: Latencies | None
    short_mixed: Latencies | None
    long: Latencies | None
    p99: Ratio
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    short_alone: list[float]
    short_mixed: list[float]
    long: list[float]
    errors: int


def measure_mixed_lengths(
    server: ServerProcess,
    answering: Answering,
    texts: Sequence[str],
    encoder: TextEncoder,
    *,
    load: float,
    rounds: int,
    seconds: float,
    rng: np.random.Generator,
    rate: float | None = None,
) -> MixedLengths:
    """load: share of the capacity for mixed texts at which they are sent, unless `rate`, all texts
    a second, is given. seconds: of one run."""
    long = [lengthened(texts, TIMES_LONGER, rng) for _ in range(_LONG_TEXTS)]
    short_requests = [answering.request(text) for text in texts]
    long_requests = [answering.request(text) for text in long]
    capacity = _capacity(server, short_requests, long_requests, seconds, rng)
    total = load * capacity if rate is None else rate
    short_rate, long_rate = total * (1 - LONG_SHARE), total * LONG_SHARE
    found = []
    for _ in tqdm(range(rounds), desc="mixed", unit="round", disable=None):
        short_at = poisson_arrivals(short_rate, seconds, rng)
        long_at = poisson_arrivals(long_rate, seconds, rng)
        short = draw(short_requests, len(short_at), rng)
        longs = draw(long_requests, len(long_at), rng)
        mixed_first = bool(rng.integers(2))
        found.append(_round(server, short, short_at, longs, long_at, mixed_first=mixed_first))
    p99s = [[_p99(r.short_mixed) for r in found], [_p99(r.short_alone) for r in found]]
    return MixedLengths(
        policy=answering.name,
        lengths=_lengths(encoder, texts, long),
        capacity=capacity,
        short_rate=short_rate,
        long_rate=long_rate,
        short_alone=latencies([s for r in found for s in r.short_alone]),
        short_mixed=latencies([s for r in found for s in r.short_mixed]),
        long=latencies([s for r in found for s in r.long]),
        p99=ratio(np.array(p99s[0]), np.array(p99s[1]), rng),
        errors=sum(r.errors for r in found),
    )


def mixed_table(found: Sequence[MixedLengths]) -> str:
    """As a Markdown table."""
    lines = [
        "| policy | tokens, short and long | long cut | short texts/s | long texts/s "
        "| short alone, p99 ms | short among long, p99 ms | ratio (95 % interval) "
        "| long, p99 ms | errors |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {m.policy} | {m.lengths.short_tokens:.0f}, {m.lengths.long_tokens:.0f} "
        f"| {m.lengths.long_cut:.0%} | {m.short_rate:.0f} | {m.long_rate:.0f} "
        f"| {_shown(m.short_alone)} | {_shown(m.short_mixed)} | {m.p99} | {_shown(m.long)} "
        f"| {m.errors} |"
        for m in found
    ]
    return "\n".join(lines)


def merged(
    short: Sequence[bytes],
    short_at: NDArray[np.float64],
    long: Sequence[bytes],
    long_at: NDArray[np.float64],
) -> tuple[list[bytes], NDArray[np.float64], list[bool]]:
    """Requests and arrivals of both in order of arrival, and which are short."""
    times = np.concatenate([short_at, long_at])
    order = np.argsort(times, kind="stable")
    both = [*short, *long]
    return [both[i] for i in order], times[order], [bool(i < len(short)) for i in order]


def _round(
    server: ServerProcess,
    short: Sequence[bytes],
    short_at: NDArray[np.float64],
    long: Sequence[bytes],
    long_at: NDArray[np.float64],
    *,
    mixed_first: bool,
) -> _Round:
    requests, arrivals, is_short = merged(short, short_at, long, long_at)
    loads: dict[bool, Load] = {}
    for mixed in (mixed_first, not mixed_first):
        loads[mixed] = (
            open_loop(server.port, requests, arrivals)
            if mixed
            else open_loop(server.port, short, short_at)
        )
    answered = loads[True].with_status(200)
    return _Round(
        short_alone=_seconds(loads[False].with_status(200)),
        short_mixed=_seconds([e for e in answered if is_short[e.index]]),
        long=_seconds([e for e in answered if not is_short[e.index]]),
        errors=loads[True].errors + loads[False].errors,
    )


def _capacity(
    server: ServerProcess,
    short: Sequence[bytes],
    long: Sequence[bytes],
    seconds: float,
    rng: np.random.Generator,
) -> float:
    requests = [*draw(short, 9 * len(long), rng), *long]
    order = rng.permutation(len(requests))
    load = closed_loop(
        server.port, [requests[i] for i in order], connections=_CONNECTIONS, seconds=seconds
    )
    return len(load.with_status(200)) / load.seconds


def _lengths(encoder: TextEncoder, short: Sequence[str], long: Sequence[str]) -> Lengths:
    encoded_long = [encoder.encode(TextInput(text)) for text in long]
    return Lengths(
        short_tokens=float(np.mean([len(encoder.encode(TextInput(text))) for text in short])),
        long_tokens=float(np.mean([len(text) for text in encoded_long])),
        long_cut=float(np.mean([text.truncated for text in encoded_long])),
    )


def _seconds(exchanges: Sequence[Exchange]) -> list[float]:
    return [exchange.seconds for exchange in exchanges]


def _p99(seconds: Sequence[float]) -> float:
    found = latencies(seconds)
    return float("nan") if found is None else found.p99_ms


def _shown(found: Latencies | None) -> str:
    return "none" if found is None else f"{found.p99_ms:.2f}"
