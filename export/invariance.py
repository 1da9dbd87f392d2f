"""Checks that a row gets the same bits alone and beside any neighbours, whatever leaves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np
from numpy.typing import NDArray

from multi_exit.batch import TokenBatch, bucket_of, pad_batch
from multi_exit.bundle import BundleManifest
from multi_exit.errors import VerificationError
from multi_exit.runner import StageResult, StageRunner
from multi_exit.text_encoder import EncodedText

_TOKENS = (3, 16, 33, 128)
_BATCHES = (2, 3, 5, 8, 17, 32)
_ROWS = max(_BATCHES)
# Every fifth row leaves after each stage, another one each time.
_LEAVES_EVERY = 5


def check_batch_invariance(
    runner: StageRunner, manifest: BundleManifest, encoded: Sequence[EncodedText]
) -> int:
    """Runs 32 rows alone, then in batches of 2 to 32, some leaving on the way; at four lengths.

    Rows are the given texts cut or repeated to nearly the length. Returns the number of rows
    compared. Raises VerificationError where a logit, an entropy or a hidden state of a row
    differs in a single bit.
    """
    compared = 0
    for tokens in sorted({min(tokens, manifest.max_length) for tokens in _TOKENS}):
        length = bucket_of(tokens, manifest.length_buckets)
        texts = _of_length(encoded, length)
        alone = [_run(runner, _batch([text], length, manifest), leaves=False) for text in texts]
        for rows in _BATCHES:
            together = _run(runner, _batch(texts[:rows], length, manifest), leaves=True)
            for stage, (row_ids, values) in enumerate(together, start=1):
                expected = [alone[row][stage - 1][1] for row in row_ids]
                _compare(values, expected, f"stage {stage}, {rows} rows of {length} tokens")
                compared += len(row_ids)
    return compared


_Stage = tuple[NDArray[np.int64], tuple[NDArray[np.float32], ...]]


def _run(runner: StageRunner, tokens: TokenBatch, *, leaves: bool) -> list[_Stage]:
    """Row numbers still there at each stage, and what the stage gave for them."""
    row_ids = np.arange(len(tokens.input_ids))
    result = runner.start(tokens)
    stages = [(row_ids, _values(result))]
    for stage in range(2, runner.stages + 1):
        assert result.state is not None, "only the last stage hands nothing on"
        stays = np.ones(len(row_ids), dtype=bool)
        if leaves and len(row_ids) > 1:
            stays[(row_ids + stage) % _LEAVES_EVERY == 0] = False
            # A stage of no rows is never run.
            stays[0] |= not stays.any()
        keep = np.flatnonzero(stays)
        row_ids = row_ids[keep]
        result = runner.advance(stage, result.state, keep)
        stages.append((row_ids, _values(result)))
    return stages


def _values(result: StageResult) -> tuple[NDArray[np.float32], ...]:
    values = (result.logits, result.entropy)
    return values if result.state is None else (*values, result.state.hidden.numpy())


def _compare(
    together: Sequence[NDArray[np.float32]],
    alone: Sequence[Sequence[NDArray[np.float32]]],
    where: str,
) -> None:
    for position, (name, values) in enumerate(
        zip(("logits", "entropy", "hidden states"), together, strict=False)
    ):
        expected = np.concatenate([row[position] for row in alone])
        if not np.array_equal(values, expected):
            difference = float(np.abs(values - expected).max())
            raise VerificationError(
                f"{where}: {name} of a row depend on its neighbours, by {difference:.2g}; "
                "these graphs cannot keep the promise of the same answer in any batch"
            )


def _batch(texts: Sequence[EncodedText], length: int, manifest: BundleManifest) -> TokenBatch:
    return pad_batch(texts, length, manifest.pad_token_id)


def _of_length(encoded: Sequence[EncodedText], length: int) -> list[EncodedText]:
    """32 texts of the bucket's length, or up to 7 tokens less, so that padding differs too."""
    texts = []
    for row, text in enumerate(islice(cycle(encoded), _ROWS)):
        tokens = max(1, length - row % 8)
        texts.append(
            EncodedText(
                np.resize(text.token_ids, tokens), np.resize(text.type_ids, tokens), False, False
            )
        )
    return texts
