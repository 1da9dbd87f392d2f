"""Batches: every text once an epoch, similar lengths together, decided by seed and epoch."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from multi_exit.text_encoder import EncodedText
from training.batches import EncodedSplit, batches_an_epoch, epoch_order, make_batch

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=300)


def _split(lengths: list[int]) -> EncodedSplit:
    texts = [
        EncodedText(np.full(length, 7), np.zeros(length, dtype=np.int64), False, False)
        for length in lengths
    ]
    return EncodedSplit(texts, np.arange(len(lengths)))


@given(lengths=LENGTHS, batch_size=st.integers(1, 40), seed=st.integers(0, 99))
def test_an_epoch_has_every_text_once(lengths: list[int], batch_size: int, seed: int) -> None:
    batches = epoch_order(lengths, batch_size, seed=seed, epoch=3)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    assert len(batches) == batches_an_epoch(len(lengths), batch_size)
    assert max(map(len, batches)) <= batch_size


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    lengths = list(range(1, 60)) * 3

    def order(seed: int, epoch: int) -> list[list[int]]:
        return epoch_order(lengths, 8, seed=seed, epoch=epoch)

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_batches_do_not_come_by_length() -> None:
    lengths = list(range(1, 161))
    longest = [
        max(lengths[row] for row in rows) for rows in epoch_order(lengths, 8, seed=0, epoch=0)
    ]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)


def test_little_is_padded() -> None:
    lengths = np.random.default_rng(0).integers(4, 64, size=1600).tolist()
    padded = sum(
        max(lengths[row] for row in rows) * len(rows)
        for rows in epoch_order(lengths, 32, seed=0, epoch=0)
    )
    assert padded <= 1.05 * sum(lengths)


def test_a_batch_is_as_long_as_its_longest_text_and_no_longer() -> None:
    batch = make_batch(_split([2, 5, 3]), [2, 0], 9, torch.device("cpu"))
    assert batch.input_ids.tolist() == [[7, 7, 7], [7, 7, 9]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.labels.tolist() == [2, 0]
    assert batch.input_ids.dtype == torch.int64
