"""Runs whole sets of texts through every exit: for calibration, golden examples and files."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multi_exit.batch import bucket_of, pad_batch
from multi_exit.bundle import Bundle, BundleManifest, GoldenExample
from multi_exit.confidence import probabilities
from multi_exit.errors import BundleError
from multi_exit.outcome import ExitOutputs
from multi_exit.policy import Policy
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import EncodedText, TextEncoder


def every_exit(
    runner: StageRunner,
    manifest: BundleManifest,
    encoded: Sequence[EncodedText],
    *,
    batch_rows: int = 32,
    advanced: Callable[[int], object] = lambda rows: None,
) -> ExitOutputs:
    """Runs every text to full depth, each at its own bucket, and keeps what every exit says.

    `advanced` is called with the number of texts finished, for progress bars.
    """
    shape = (len(encoded), len(manifest.exits))
    logits = np.empty((*shape, len(manifest.labels)), dtype=np.float32)
    entropy = np.empty(shape, dtype=np.float32)
    for bucket, group in _groups(encoded, manifest, batch_rows):
        tokens = pad_batch([encoded[row] for row in group], bucket, manifest.pad_token_id)
        result = runner.start(tokens)
        logits[group, 0], entropy[group, 0] = result.logits, result.entropy
        keep = np.arange(len(group))
        for stage in range(2, runner.stages + 1):
            assert result.state is not None, "only the last stage hands nothing on"
            result = runner.advance(stage, result.state, keep)
            logits[group, stage - 1], entropy[group, stage - 1] = result.logits, result.entropy
        advanced(len(group))
    return ExitOutputs(logits, entropy)


def stage_seconds(
    runner: StageRunner, manifest: BundleManifest, encoded: Sequence[EncodedText]
) -> tuple[float, ...]:
    """What each stage takes for one text alone: the median over texts, after one to warm up."""
    alone = np.zeros(1, dtype=np.int64)
    taken: list[list[float]] = []
    for text in (encoded[0], *encoded):
        bucket = bucket_of(len(text), manifest.length_buckets)
        tokens = pad_batch([text], bucket, manifest.pad_token_id)
        times = [time.perf_counter()]
        result = runner.start(tokens)
        times.append(time.perf_counter())
        for stage in range(2, runner.stages + 1):
            assert result.state is not None, "only the last stage hands nothing on"
            result = runner.advance(stage, result.state, alone)
            times.append(time.perf_counter())
        taken.append(np.diff(times).tolist())
    return tuple(float(seconds) for seconds in np.median(taken[1:], axis=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one text was answered. score: probability of the label; entropy: normalised."""

    label: str
    score: float
    exit_layer: int
    entropy: float
    truncated: bool


def classify_texts(
    runner: StageRunner,
    manifest: BundleManifest,
    encoded: Sequence[EncodedText],
    policy: Policy,
    *,
    batch_rows: int = 32,
    advanced: Callable[[int], object] = lambda rows: None,
) -> list[Answer]:
    """Answers every text at the exit its policy says, in order; later layers are not run.

    Raises ValueError where an exit gives a number that is not finite.
    """
    answers: dict[int, Answer] = {}
    for bucket, group in _groups(encoded, manifest, batch_rows):
        rows = np.asarray(group)
        tokens = pad_batch([encoded[row] for row in group], bucket, manifest.pad_token_id)
        keep = np.arange(len(group))
        result = runner.start(tokens)
        for exit_index in range(len(manifest.exits)):
            if exit_index > 0:
                assert result.state is not None, "only the last stage hands nothing on"
                result = runner.advance(exit_index + 1, result.state, keep)
            leaves = np.array([policy.leaves(exit_index, float(e)) for e in result.entropy])
            chosen = probabilities(result.logits)
            for position in np.flatnonzero(leaves):
                label = int(chosen[position].argmax())
                row = int(rows[position])
                answers[row] = Answer(
                    label=manifest.labels[label],
                    score=float(chosen[position, label]),
                    exit_layer=manifest.exits[exit_index],
                    entropy=float(result.entropy[position]),
                    truncated=encoded[row].truncated or encoded[row].truncated_pair,
                )
            keep = np.flatnonzero(~leaves)
            rows = rows[keep]
            if len(rows) == 0:
                break
        advanced(len(group))
    return [answers[row] for row in range(len(encoded))]


def check_golden(runner: StageRunner, bundle: Bundle, encoder: TextEncoder) -> None:
    """Runs the golden examples. Raises BundleError where an exit answers otherwise than sealed."""
    manifest = bundle.manifest
    if not manifest.golden:
        return
    encoded = [encoder.encode(example.text_input) for example in manifest.golden]
    outputs = every_exit(runner, manifest, encoded)
    for row, example in enumerate(manifest.golden):
        check_golden_answer(example, outputs.logits[row], outputs.entropy[row], bundle)


def check_golden_answer(
    example: GoldenExample,
    logits: NDArray[np.float32],
    entropies: NDArray[np.floating],
    bundle: Bundle,
) -> None:
    """Compares what every exit said, logits [exits, K] and entropies [exits], with what was sealed.

    Raises BundleError where they differ by more than the manifest allows, or in a label.
    """
    manifest = bundle.manifest
    logit = float(np.abs(logits - np.asarray(example.logits)).max())
    entropy = float(np.abs(entropies - np.asarray(example.entropies)).max())
    labels = tuple(manifest.labels[label] for label in logits.argmax(axis=1))
    # Written so that NaN fails. Entropy moves at most twice as far as the logits do.
    near = logit <= manifest.golden_tolerance and entropy <= 2 * manifest.golden_tolerance
    if labels != example.labels or not near:
        number = manifest.golden.index(example)
        raise BundleError(
            f"golden example {number} of {bundle.path} differs by {logit:.2g} in a logit (allowed "
            f"{manifest.golden_tolerance:.2g}), {entropy:.2g} in an entropy, labels {labels} where "
            f"{example.labels} were sealed; this machine computes otherwise than the one that "
            "exported: export anew, or use another provider"
        )


def _groups(
    encoded: Sequence[EncodedText], manifest: BundleManifest, batch_rows: int
) -> Iterator[tuple[int, list[int]]]:
    """Rows that run together: of one bucket, at most batch_rows, short texts first."""
    by_bucket: dict[int, list[int]] = defaultdict(list)
    for row, text in enumerate(encoded):
        by_bucket[bucket_of(len(text), manifest.length_buckets)].append(row)
    for bucket, rows in sorted(by_bucket.items()):
        for start in range(0, len(rows), batch_rows):
            yield bucket, rows[start : start + batch_rows]
