"""Mini-batches of texts of similar length, in an order that a seed and an epoch number decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from multi_exit.batch import TokenBatch, pad_batch
from multi_exit.text_encoder import EncodedText

# Batches sorted together: long enough to find texts of one length, short enough to stay random.
_BATCHES_A_POOL = 50


@dataclass(frozen=True, slots=True, eq=False)
class EncodedSplit:
    """Texts of a split as tokens, and the index of each label, int64 [texts]."""

    texts: Sequence[EncodedText]
    labels: np.ndarray[tuple[int], np.dtype[np.int64]]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Tensors of one mini-batch on the device; int64 [batch, length], labels [batch]."""

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    labels: Tensor


def batches_an_epoch(texts: int, batch_size: int) -> int:
    """Mini-batches of one epoch; the last may be smaller."""
    return -(-texts // batch_size)


def epoch_order(
    lengths: Sequence[int], batch_size: int, *, seed: int, epoch: int
) -> list[list[int]]:
    """Row numbers of every mini-batch of one epoch: each row once, similar lengths together.

    A pure function of its arguments, so that a resumed run finds the same batches.
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(lengths))
    pool = batch_size * _BATCHES_A_POOL
    batches = []
    for start in range(0, len(order), pool):
        rows = sorted(order[start : start + pool].tolist(), key=lambda row: lengths[row])
        batches += [rows[at : at + batch_size] for at in range(0, len(rows), batch_size)]
    return [batches[index] for index in rng.permutation(len(batches))]


def make_batch(
    split: EncodedSplit, rows: Sequence[int], pad_token_id: int, device: torch.device
) -> Batch:
    """Pads the rows to their longest text, and no further."""
    texts = [split.texts[row] for row in rows]
    tokens: TokenBatch = pad_batch(texts, max(map(len, texts)), pad_token_id)
    return Batch(
        input_ids=torch.from_numpy(tokens.input_ids).to(device),
        attention_mask=torch.from_numpy(tokens.attention_mask).to(device),
        token_type_ids=torch.from_numpy(tokens.token_type_ids).to(device),
        labels=make_labels(split, rows, device),
    )


def make_labels(split: EncodedSplit, rows: Sequence[int], device: torch.device) -> Tensor:
    """Label indices of the rows, int64 [rows]."""
    return torch.from_numpy(split.labels[list(rows)]).to(device)
