"""What the server adds to a short text: HTTP, tokens, queue and answer, over the bare stages.

Both ask the same texts one at a time, full depth or early exit alike, in interleaved rounds on
one machine. The client's own time, and the loopback's, are in what the server is said to add.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from bench.interleave import Difference, difference
from bench.serving.drive import closed_loop
from bench.serving.questions import Answering
from bench.serving.server_process import ServerProcess
from multi_exit.batch import bucket_of, pad_batch
from multi_exit.bundle import BundleManifest
from multi_exit.policy import Policy
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import EncodedText, TextEncoder, TextInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Milliseconds a text, alone. tokens: mean of the texts; p50s are medians over rounds."""

    policy: str
    texts: int
    tokens: float
    http_p50_ms: float
    stages_p50_ms: float
    overhead_ms: Difference


def short_texts(texts: Sequence[str], encoder: TextEncoder) -> list[str]:
    """The half of the texts with fewer tokens."""
    lengths = [len(encoder.encode(TextInput(text))) for text in texts]
    median = float(np.median(lengths))
    return [text for text, length in zip(texts, lengths, strict=True) if length <= median]


def measure_overhead(
    server: ServerProcess,
    runner: StageRunner,
    manifest: BundleManifest,
    encoder: TextEncoder,
    *,
    texts: Sequence[str],
    answering: Answering,
    rounds: int,
    rng: np.random.Generator,
) -> Overhead:
    """runner: of the same bundle and threads, in this process; the server idles while it runs."""
    encoded = [encoder.encode(TextInput(text)) for text in texts]
    requests = [answering.request(text) for text in texts]

    def over_http() -> list[float]:
        load = closed_loop(server.port, requests, connections=1)
        return [exchange.seconds for exchange in load.exchanges]

    def bare() -> list[float]:
        return [_stages_seconds(runner, manifest, text, answering.policy) for text in encoded]

    candidates = (over_http, bare)
    medians: tuple[list[float], list[float]] = ([], [])
    for round_ in tqdm(range(rounds + 1), desc="overhead", unit="round", disable=None):
        for index in rng.permutation(2):
            seconds = candidates[index]()
            if round_:  # the first warms up
                medians[index].append(float(np.median(seconds)) * 1e3)
    http, stages = (np.array(side) for side in medians)
    return Overhead(
        policy=answering.name,
        texts=len(texts),
        tokens=float(np.mean([len(text) for text in encoded])),
        http_p50_ms=float(np.median(http)),
        stages_p50_ms=float(np.median(stages)),
        overhead_ms=difference(http, stages, rng),
    )


def overhead_table(found: Sequence[Overhead]) -> str:
    """As a Markdown table."""
    lines = [
        "| short texts, alone | tokens | HTTP p50, ms | bare stages p50, ms "
        "| the server adds, ms (95 % interval) |",
        "|---|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {o.policy} | {o.tokens:.1f} | {o.http_p50_ms:.2f} | {o.stages_p50_ms:.2f} "
        f"| {o.overhead_ms} |"
        for o in found
    ]
    return "\n".join(lines)


def _stages_seconds(
    runner: StageRunner, manifest: BundleManifest, text: EncodedText, policy: Policy
) -> float:
    """Stage after stage until the text leaves; its tokens are there already."""
    started = time.perf_counter()
    bucket = bucket_of(len(text), manifest.length_buckets)
    result = runner.start(pad_batch([text], bucket, manifest.pad_token_id))
    exit_index, alone = 0, np.zeros(1, dtype=np.int64)
    while not policy.leaves(exit_index, float(result.entropy[0])):
        assert result.state is not None, "the last exit always answers"
        exit_index += 1
        result = runner.advance(exit_index + 1, result.state, alone)
    return time.perf_counter() - started
