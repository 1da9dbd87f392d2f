"""Staging overhead: all stages in sequence against one graph of the same model.

Both compute every exit; keep names every row, so no exit saves anything. Interleaved in one run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tqdm import tqdm

from bench.engine.single_graph import join_stages
from bench.interleave import Ratio, interleaved_seconds, ratio
from multi_exit.batch import TokenBatch
from multi_exit.bundle import Bundle
from multi_exit.runner import StageRunner, open_session

SHAPES = tuple((rows, length) for rows in (1, 8, 32) for length in (16, 32, 64, 128))
# Each timing of a round lasts about this long, so that clock and scheduling noise are small in it.
_SECONDS_A_TIMING = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingResult:
    """One shape: milliseconds (medians over rounds) and stages / single graph, round by round."""

    rows: int
    length: int
    stages_ms: float
    single_graph_ms: float
    overhead: Ratio


def measure_staging(
    bundle: Bundle, *, threads: int, rounds: int, seed: int = 0
) -> list[StagingResult]:
    """Measures every shape whose length the bundle takes. CPU only."""
    rng = np.random.default_rng(seed)
    shapes = [shape for shape in SHAPES if shape[1] <= bundle.manifest.max_length]
    runner = StageRunner(bundle, provider="cpu", threads=threads)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "joined.onnx"
        join_stages(bundle, path)
        joined = open_session(path, "cpu")
    return [
        _measure(runner, joined, bundle, shape, rounds=rounds, rng=rng)
        for shape in tqdm(shapes, desc="staging", unit="shape", disable=None)
    ]


def _measure(
    runner: StageRunner,
    joined: ort.InferenceSession,
    bundle: Bundle,
    shape: tuple[int, int],
    *,
    rounds: int,
    rng: np.random.Generator,
) -> StagingResult:
    rows, length = shape
    tokens = _tokens(rows, length, bundle, rng)
    inputs: dict[str, NDArray[np.int64]] = {
        name: getattr(tokens, name) for name in bundle.manifest.model_inputs
    }
    inputs["keep"] = np.arange(rows)

    def single() -> NDArray[np.float32]:
        outputs: list[NDArray[np.float32]] = joined.run(None, inputs)
        return outputs[-2]

    def stages() -> NDArray[np.float32]:
        return run_all_stages(runner, tokens)

    # Differently fused graphs may round differently, but must say the same.
    np.testing.assert_allclose(single(), stages(), atol=bundle.manifest.golden_tolerance)
    repeats = max(1, round(_SECONDS_A_TIMING / _seconds(single)))
    seconds = interleaved_seconds(
        {"single": single, "stages": stages}, rounds=rounds, repeats=repeats, rng=rng
    )
    return StagingResult(
        rows=rows,
        length=length,
        stages_ms=float(np.median(seconds["stages"]) * 1e3),
        single_graph_ms=float(np.median(seconds["single"]) * 1e3),
        overhead=ratio(seconds["stages"], seconds["single"], rng),
    )


def run_all_stages(runner: StageRunner, tokens: TokenBatch) -> NDArray[np.float32]:
    """Every row through every stage; logits of the last exit, [batch, K]."""
    result = runner.start(tokens)
    keep = np.arange(len(tokens.input_ids))
    for stage in range(2, runner.stages + 1):
        assert result.state is not None, "only the last stage hands nothing on"
        result = runner.advance(stage, result.state, keep)
    return result.logits


def staging_table(results: list[StagingResult]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| rows | length | one graph, ms | stages, ms | stages / one graph (95 % interval) |",
        "|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {r.rows} | {r.length} | {r.single_graph_ms:.2f} | {r.stages_ms:.2f} "
        f"| {r.overhead.median:.3f} ({r.overhead.low:.3f} to {r.overhead.high:.3f}) |"
        for r in results
    ]
    return "\n".join(lines)


def staging_json(results: list[StagingResult]) -> list[dict[str, object]]:
    """The results as plain data."""
    return [asdict(result) for result in results]


def _tokens(rows: int, length: int, bundle: Bundle, rng: np.random.Generator) -> TokenBatch:
    """Tokens of the golden examples in random order: of any length, and in the vocabulary."""
    encoder = bundle.text_encoder()
    golden = [encoder.encode(example.text_input) for example in bundle.manifest.golden]
    words = np.concatenate([text.token_ids for text in golden])
    shape = (rows, length)
    return TokenBatch(
        input_ids=rng.choice(words, shape),
        attention_mask=np.ones(shape, dtype=np.int64),
        token_type_ids=np.zeros(shape, dtype=np.int64),
    )


def _seconds(run: Callable[[], object]) -> float:
    rng = np.random.default_rng(0)
    return float(interleaved_seconds({"one": run}, rounds=3, repeats=3, rng=rng)["one"].min())
