"""What int8 gains and costs: an int8 bundle against the fp32 one it was made of.

`python -m bench.engine.precision FP32 INT8 --checkpoint CHECKPOINT` compares size on disk, the
answers of every exit on the checkpoint's test split, and the time of every stage, in interleaved
rounds.

Time is processor time of one thread: on a quiet machine it is what a clock says, and on a busy one
it leaves out the time that others had the core.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from bench.interleave import Ratio, ratio
from bench.machine import describe_machine
from multi_exit.batch import TokenBatch
from multi_exit.bundle import Bundle, load_bundle
from multi_exit.errors import ConfigurationError
from multi_exit.offline import every_exit
from multi_exit.runner import RowState, StageResult, StageRunner
from multi_exit.text_encoder import EncodedText

if TYPE_CHECKING:
    from training.data import LabelledExample

SHAPES = tuple((rows, length) for rows in (1, 8, 32) for length in (16, 32, 128))
# Each timing of a round lasts about this long, so that one interruption is little of it.
_SECONDS_A_TIMING = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitComparison:
    """One exit on the same texts: shares of right labels, and of labels that both say."""

    exit_layer: int
    fp32_accuracy: float
    int8_accuracy: float
    agreement: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpeed:
    """One stage and shape: milliseconds (medians over rounds), and fp32 / int8 round by round."""

    stage: int
    rows: int
    length: int
    fp32_ms: float
    int8_ms: float
    speedup: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSize:
    """Bytes of one stage's graph in each bundle."""

    stage: int
    fp32_bytes: int
    int8_bytes: int


def compare_sizes(fp32: Bundle, int8: Bundle) -> list[StageSize]:
    """Sizes on disk, stage by stage."""
    pairs = zip(fp32.manifest.stages, int8.manifest.stages, strict=True)
    return [
        StageSize(
            stage=number,
            fp32_bytes=(fp32.path / before.file).stat().st_size,
            int8_bytes=(int8.path / after.file).stat().st_size,
        )
        for number, (before, after) in enumerate(pairs, start=1)
    ]


def compare_exits(
    fp32: Bundle, int8: Bundle, encoded: Sequence[EncodedText], labels: NDArray[np.int64]
) -> list[ExitComparison]:
    """Runs every text to full depth in both bundles; labels: int64 [texts], the true ones."""
    before, after = (
        every_exit(StageRunner(bundle, provider="cpu", threads=1), bundle.manifest, encoded).labels
        for bundle in (fp32, int8)
    )
    return [
        ExitComparison(
            exit_layer=layer,
            fp32_accuracy=float((before[:, index] == labels).mean()),
            int8_accuracy=float((after[:, index] == labels).mean()),
            agreement=float((before[:, index] == after[:, index]).mean()),
        )
        for index, layer in enumerate(fp32.manifest.exits)
    ]


def compare_stages(
    fp32: Bundle,
    int8: Bundle,
    *,
    rounds: int,
    shapes: Sequence[tuple[int, int]],
    seed: int = 0,
) -> list[StageSpeed]:
    """Times every stage at every (rows, length). Both read fp32 hidden states of the same tokens.

    Raises ConfigurationError for bundles of different stages.
    """
    if fp32.manifest.stages != int8.manifest.stages or fp32.manifest.exits != int8.manifest.exits:
        raise ConfigurationError(f"{fp32.path} and {int8.path} are not bundles of the same stages")
    rng = np.random.default_rng(seed)
    runners = [StageRunner(bundle, provider="cpu", threads=1) for bundle in (fp32, int8)]
    speeds: list[StageSpeed] = []
    for rows, length in tqdm(shapes, desc="precision", unit="shape", disable=None):
        tokens = _tokens(rows, length, fp32, rng)
        result = runners[0].start(tokens)
        calls = [partial(runner.start, tokens) for runner in runners]
        for stage in range(1, runners[0].stages + 1):
            if stage > 1:
                calls = [_advance(runner, stage, result.state) for runner in runners]
                result = calls[0]()
            seconds = _seconds(calls, rounds, rng)
            speeds.append(
                StageSpeed(
                    stage=stage,
                    rows=rows,
                    length=length,
                    fp32_ms=float(np.median(seconds["fp32"]) * 1e3),
                    int8_ms=float(np.median(seconds["int8"]) * 1e3),
                    speedup=ratio(seconds["fp32"], seconds["int8"], rng),
                )
            )
    return speeds


def _advance(runner: StageRunner, stage: int, state: RowState | None) -> partial[StageResult]:
    assert state is not None, "only the last stage hands nothing on"
    return partial(runner.advance, stage, state, np.arange(state.rows))


def _seconds(
    calls: Sequence[Callable[[], object]], rounds: int, rng: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """Processor seconds a call, one number a round, in an order drawn anew each round."""
    calls[1]()
    _processor_seconds(calls[0], 1)
    repeats = max(1, round(_SECONDS_A_TIMING / _processor_seconds(calls[0], 1)))
    candidates = dict(zip(("fp32", "int8"), calls, strict=True))
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name in rng.permutation(list(candidates)):
            seconds[name].append(_processor_seconds(candidates[name], repeats))
    return {name: np.asarray(values) for name, values in seconds.items()}


def _processor_seconds(run: Callable[[], object], repeats: int) -> float:
    # Of the thread: with a pool of one, onnxruntime computes in the thread that calls it.
    start = time.thread_time()
    for _ in range(repeats):
        run()
    return (time.thread_time() - start) / repeats


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


def tables(
    sizes: Sequence[StageSize], exits: Sequence[ExitComparison], speeds: Sequence[StageSpeed]
) -> str:
    """What was found as three Markdown tables; speed by stage, with one column a shape."""
    lines = ["| stage | fp32, MB | int8, MB |", "|--:|--:|--:|"]
    lines += [f"| {s.stage} | {s.fp32_bytes / 1e6:.1f} | {s.int8_bytes / 1e6:.1f} |" for s in sizes]
    lines += ["", "| exit | fp32 accuracy | int8 accuracy | same label |", "|--:|--:|--:|--:|"]
    lines += [
        f"| {e.exit_layer} | {e.fp32_accuracy:.2%} | {e.int8_accuracy:.2%} | {e.agreement:.2%} |"
        for e in exits
    ]
    lines += [
        "",
        "| stage | rows | length | fp32, ms | int8, ms | fp32 / int8 (95 % interval) |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {s.stage} | {s.rows} | {s.length} | {s.fp32_ms:.2f} | {s.int8_ms:.2f} | {s.speedup} |"
        for s in speeds
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.engine.precision")
    parser.add_argument("fp32", type=Path)
    parser.add_argument("int8", type=Path)
    parser.add_argument("--checkpoint", type=Path, help="whose test split both answer")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    fp32, int8 = load_bundle(options.fp32), load_bundle(options.int8)
    sizes = compare_sizes(fp32, int8)
    speeds = compare_stages(fp32, int8, rounds=options.rounds, shapes=SHAPES)
    exits = _exits_on_test(fp32, int8, options.checkpoint) if options.checkpoint else []
    if options.json:
        found: dict[str, Sequence[Any]] = {"sizes": sizes, "exits": exits, "speeds": speeds}
        data = {name: [asdict(row) for row in rows] for name, rows in found.items()}
        command = ["python", "-m", "bench.engine.precision", *(arguments or sys.argv[1:])]
        print(json.dumps({"command": command, "machine": describe_machine(), **data}))
    else:
        print(tables(sizes, exits, speeds))


def _exits_on_test(fp32: Bundle, int8: Bundle, checkpoint: Path) -> list[ExitComparison]:
    from export.encode import encode_examples, label_indices
    from training.checkpoint import load_manifest
    from training.provenance import splits_of

    texts: Sequence[LabelledExample] = splits_of(load_manifest(checkpoint)).test
    if not texts:
        raise ConfigurationError(f"{checkpoint} was trained without a test split")
    encoded = encode_examples(fp32.text_encoder(), texts, "test")
    return compare_exits(fp32, int8, encoded, label_indices(texts, fp32.manifest.labels))


if __name__ == "__main__":
    main()
