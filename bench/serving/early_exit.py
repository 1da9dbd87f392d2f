"""How much of what early exit could save is saved, in the engine itself, without HTTP.

Ideal time = time at full depth * average layers / layers; efficiency = ideal / time. What is
missing to 1 is the price of smaller batches, of dropping rows, and of what every text costs
whatever its depth. Both policies run in every round, in an order drawn anew.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import uvloop
from prometheus_client import CollectorRegistry
from tqdm import tqdm

from bench.interleave import Ratio, interleaved_seconds, ratio
from bench.serving.questions import Answering, early_exit, full_depth
from multi_exit.bundle import Bundle
from multi_exit.policy import Policy
from multi_exit.text_encoder import EncodedText, TextInput
from service.answers import RowAnswer
from service.engine import Engine
from service.metrics import Metrics
from service.readiness import Readiness
from service.settings import load_settings

# together: N texts handed in at once, all awaited. in flight: as soon as one of N is answered,
# the next is handed in.
How = Literal["together", "in flight"]
AT_ONCE = (1, 8, 32)
# As in service/main.py: the worker gives the interpreter up at every stage and wants it back.
_SWITCH_SECONDS = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """One number of texts at once. Milliseconds a text are medians over rounds.

    speedup: time at full depth / time. efficiency: speedup / ideal_speedup.
    """

    at_once: int
    how: How
    full_depth_ms: float
    early_exit_ms: float
    average_layers: float
    ideal_speedup: float
    speedup: Ratio
    efficiency: Ratio


def measure_efficiency(
    bundle: Bundle,
    texts: Sequence[str],
    *,
    threshold: float | None,
    threads: int,
    rounds: int,
    seed: int = 0,
    at_once: Sequence[int] = AT_ONCE,
) -> list[Efficiency]:
    """Runs all texts, in their order, at every number of texts at once."""
    manifest, rng = bundle.manifest, np.random.default_rng(seed)
    encoder = bundle.text_encoder()
    encoded = [encoder.encode(TextInput(text)) for text in texts]
    full, early = full_depth(manifest), early_exit(manifest, threshold)
    cases = [(count, how) for count in at_once for how in _hows(count)]
    with _engine(bundle, threads) as (engine, loop):
        layers = loop.run(_in_flight(engine, encoded, early.policy, 1, manifest.exits))

        def timed(answering: Answering, count: int, how: How) -> Callable[[], object]:
            drive = _together if how == "together" else _in_flight
            return lambda: loop.run(drive(engine, encoded, answering.policy, count, manifest.exits))

        found = []
        for count, how in tqdm(cases, desc="efficiency", disable=None):
            seconds = interleaved_seconds(
                {"full": timed(full, count, how), "early": timed(early, count, how)},
                rounds=rounds,
                repeats=1,
                rng=rng,
            )
            speedup = ratio(seconds["full"], seconds["early"], rng)
            ideal = manifest.layers / layers
            found.append(
                Efficiency(
                    at_once=count,
                    how=how,
                    full_depth_ms=float(np.median(seconds["full"])) * 1e3 / len(texts),
                    early_exit_ms=float(np.median(seconds["early"])) * 1e3 / len(texts),
                    average_layers=layers,
                    ideal_speedup=ideal,
                    speedup=speedup,
                    efficiency=speedup.scaled(1 / ideal),
                )
            )
    return found


def efficiency_table(found: Sequence[Efficiency]) -> str:
    """As a Markdown table."""
    lines = [
        "| texts at once | | full depth, ms a text | early exit, ms a text | layers "
        "| ideal speed-up | speed-up (95 % interval) | efficiency (95 % interval) |",
        "|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {e.at_once} | {e.how} | {e.full_depth_ms:.2f} | {e.early_exit_ms:.2f} "
        f"| {e.average_layers:.2f} | {e.ideal_speedup:.2f} | {e.speedup} | {e.efficiency} |"
        for e in found
    ]
    return "\n".join(lines)


def _hows(count: int) -> tuple[How, ...]:
    return ("together",) if count == 1 else ("together", "in flight")


@contextmanager
def _engine(bundle: Bundle, threads: int) -> Iterator[tuple[Engine, asyncio.Runner]]:
    """The service's engine, warmed and checked, on an event loop like the service's."""
    manifest, readiness = bundle.manifest, Readiness()
    metrics = Metrics(CollectorRegistry(), layers=manifest.layers, stages=len(manifest.stages))
    settings = load_settings(bundle=bundle.path, provider="cpu", threads=threads)
    switch_seconds = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(readiness.start(bundle, bundle.text_encoder(), settings, metrics))
            yield readiness.require_engine(), loop
            loop.run(readiness.stop())
    finally:
        sys.setswitchinterval(switch_seconds)


async def _together(
    engine: Engine, texts: Sequence[EncodedText], policy: Policy, count: int, exits: Sequence[int]
) -> float:
    """Answers all; returns the average exit layer."""
    layers: list[int] = []
    for start in range(0, len(texts), count):
        pending = engine.submit(texts[start : start + count], policy, explain=False)
        layers += [_exit_layer(outcome, exits) for outcome in await pending.outcomes]
    return sum(layers) / len(layers)


async def _in_flight(
    engine: Engine, texts: Sequence[EncodedText], policy: Policy, count: int, exits: Sequence[int]
) -> float:
    """Answers all; returns the average exit layer."""
    layers: list[int] = []
    left = iter(texts)

    async def one_after_another() -> None:
        for text in left:
            (outcome,) = await engine.submit([text], policy, explain=False).outcomes
            layers.append(_exit_layer(outcome, exits))

    await asyncio.gather(*(one_after_another() for _ in range(count)))
    return sum(layers) / len(layers)


def _exit_layer(outcome: Any, exits: Sequence[int]) -> int:
    if not isinstance(outcome, RowAnswer):
        raise outcome
    return exits[outcome.exit_index]
