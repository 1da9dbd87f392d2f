"""Length buckets, and padding of encoded texts to a bucket.

A row always runs at the bucket of its own length and only beside rows of that bucket: the
answer then does not depend, to the bit, on its neighbours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multi_exit.text_encoder import EncodedText


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """Token tensors of texts that run together; all int64 [batch, length]."""

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]
    token_type_ids: NDArray[np.int64]


def default_buckets(max_length: int) -> tuple[int, ...]:
    """Padded lengths, finer where texts are short: steps of 4, 8, 16, 32 and 64 tokens.

    The step doubles as the length does, so that padding stays near 6 % of a long text.
    """
    buckets: list[int] = []
    length = 0
    for limit, step in ((32, 4), (64, 8), (128, 16), (256, 32), (max(max_length, 256), 64)):
        while length < min(limit, max_length):
            length += step
            buckets.append(min(length, max_length))
    return tuple(buckets)


def bucket_of(tokens: int, buckets: tuple[int, ...]) -> int:
    """The smallest bucket that holds `tokens` tokens; buckets ascend.

    Raises ValueError where none does: the encoder cuts at the longest bucket, so it is a bug.
    """
    position = bisect_left(buckets, tokens)
    if position == len(buckets):
        raise ValueError(f"{tokens} tokens do not fit the longest bucket, {buckets[-1]} (a bug)")
    return buckets[position]


def pad_batch(encoded: Sequence[EncodedText], length: int, pad_token_id: int) -> TokenBatch:
    """Pads each text on the right to `length` tokens. Raises ValueError for one that is longer."""
    input_ids = np.full((len(encoded), length), pad_token_id, dtype=np.int64)
    attention_mask = np.zeros((len(encoded), length), dtype=np.int64)
    token_type_ids = np.zeros((len(encoded), length), dtype=np.int64)
    for row, text in enumerate(encoded):
        tokens = len(text)
        if tokens > length:
            raise ValueError(f"a text of {tokens} tokens does not fit {length} (a bug)")
        input_ids[row, :tokens] = text.token_ids
        attention_mask[row, :tokens] = 1
        token_type_ids[row, :tokens] = text.type_ids
    return TokenBatch(
        input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
    )
