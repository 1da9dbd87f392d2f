"""Compares exported graphs with the checkpoint in torch, on real texts and swept shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
import torch
from numpy.typing import NDArray

from multi_exit.batch import TokenBatch, bucket_of, pad_batch
from multi_exit.bundle import BundleManifest
from multi_exit.confidence import normalised_entropy
from multi_exit.errors import VerificationError
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import EncodedText
from training.model import MultiExitModel

# Rows x tokens: one row, odd sizes, and the longest. A None is the model's longest.
SHAPES: tuple[tuple[int, int | None], ...] = ((1, 3), (3, 7), (17, 33), (64, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was compared, and the largest differences found over all exits."""

    batches: int
    rows: int
    largest_logit_difference: float
    largest_entropy_difference: float


def verify(
    model: MultiExitModel,
    runner: StageRunner,
    manifest: BundleManifest,
    encoded: Sequence[EncodedText],
    *,
    tolerance: float,
) -> Verification:
    """Runs the same batches through torch and the graphs.

    Shapes are swept with texts cut to length, shorter ones padded; then the texts themselves in
    their buckets. Raises VerificationError where an entropy differs by more than `tolerance`, a
    logit by more than `tolerance` times the largest logit of its exit (1 at least: rounding grows
    with size), or a label though its margin is wider than that.
    """
    batches = [*_shape_batches(encoded, manifest), *_bucket_batches(encoded, manifest)]
    differences = [_compare(model, runner, tokens, tolerance) for tokens in batches]
    return Verification(
        batches=len(batches),
        rows=sum(len(tokens.input_ids) for tokens in batches),
        largest_logit_difference=max(logit for logit, _ in differences),
        largest_entropy_difference=max(entropy for _, entropy in differences),
    )


def torch_logits(model: MultiExitModel, tokens: TokenBatch) -> NDArray[np.float32]:
    """Logits of every exit by the checkpoint itself, [exits, batch, K]."""
    with torch.inference_mode():
        outputs = model(
            torch.from_numpy(tokens.input_ids),
            torch.from_numpy(tokens.attention_mask),
            torch.from_numpy(tokens.token_type_ids),
        )
    logits: NDArray[np.float32] = outputs.logits.float().numpy()
    return logits


def _compare(
    model: MultiExitModel, runner: StageRunner, tokens: TokenBatch, tolerance: float
) -> tuple[float, float]:
    expected = torch_logits(model, tokens)
    keep = np.arange(len(tokens.input_ids))
    result = runner.start(tokens)
    largest = (0.0, 0.0)
    for exit_index, logits in enumerate(expected):
        if exit_index > 0:
            assert result.state is not None, "only the last stage hands nothing on"
            result = runner.advance(exit_index + 1, result.state, keep)
        logit = float(np.abs(result.logits - logits).max())
        entropy = float(np.abs(result.entropy - normalised_entropy(logits)).max())
        allowed = tolerance * max(1.0, float(np.abs(logits).max()))
        ordered = np.sort(logits, axis=1)
        clear = ordered[:, -1] - ordered[:, -2] > 2 * allowed
        relabelled = int((result.logits.argmax(1) != logits.argmax(1))[clear].sum())
        # Written so that NaN fails.
        if not (logit <= allowed and entropy <= tolerance and relabelled == 0):
            raise VerificationError(
                f"exit {exit_index + 1} on {tokens.input_ids.shape} tokens: logits differ from "
                f"torch by {logit:.2g} (allowed {allowed:.2g}) and entropy by {entropy:.2g} "
                f"(allowed {tolerance:.2g}), "
                f"{relabelled} labels differ; the export of this architecture is wrong"
            )
        largest = (max(largest[0], logit), max(largest[1], entropy))
    return largest


def _shape_batches(encoded: Sequence[EncodedText], manifest: BundleManifest) -> list[TokenBatch]:
    batches = []
    for rows, length in SHAPES:
        longest = min(length or manifest.max_length, manifest.max_length)
        texts = [_cut(text, longest) for text in islice(cycle(encoded), rows)]
        # One text is repeated up to the full length, so that padding and none meet in a batch.
        texts[0] = _stretched(encoded[0], longest)
        batches.append(pad_batch(texts, longest, manifest.pad_token_id))
    return batches


def _bucket_batches(encoded: Sequence[EncodedText], manifest: BundleManifest) -> list[TokenBatch]:
    by_bucket: dict[int, list[EncodedText]] = {}
    for text in encoded:
        by_bucket.setdefault(bucket_of(len(text), manifest.length_buckets), []).append(text)
    return [
        pad_batch(texts[:32], bucket, manifest.pad_token_id)
        for bucket, texts in sorted(by_bucket.items())
    ]


def _cut(text: EncodedText, length: int) -> EncodedText:
    return EncodedText(text.token_ids[:length], text.type_ids[:length], False, False)


def _stretched(text: EncodedText, length: int) -> EncodedText:
    return EncodedText(
        np.resize(text.token_ids, length), np.resize(text.type_ids, length), False, False
    )
