"""Buckets ascend and are the smallest that fit; padding is on the right and masked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_exit.batch import bucket_of, default_buckets, pad_batch
from multi_exit.text_encoder import EncodedText


@given(st.integers(4, 2000), st.data())
def test_a_bucket_is_the_smallest_that_holds_the_text(longest: int, data: st.DataObject) -> None:
    buckets = default_buckets(longest)
    assert list(buckets) == sorted(set(buckets))
    assert buckets[-1] == longest
    tokens = data.draw(st.integers(1, longest))
    bucket = bucket_of(tokens, buckets)
    assert bucket in buckets
    assert bucket >= tokens
    assert all(other < tokens for other in buckets if other < bucket)
    with pytest.raises(ValueError, match="do not fit"):
        bucket_of(longest + 1, buckets)


@given(st.integers(16, 2000), st.data())
def test_a_bucket_pads_by_a_third_at_most(longest: int, data: st.DataObject) -> None:
    tokens = data.draw(st.integers(9, longest))
    assert bucket_of(tokens, default_buckets(longest)) <= tokens * 4 / 3


def _encoded(tokens: int, seed: int) -> EncodedText:
    rng = np.random.default_rng(seed)
    return EncodedText(rng.integers(5, 99, tokens), rng.integers(0, 2, tokens), False, False)


@given(
    st.lists(st.integers(1, 20), max_size=6),
    st.integers(0, 5),
    st.integers(0, 10),
    st.integers(0, 1000),
)
def test_padding_is_on_the_right_and_masked(
    lengths: list[int], spare: int, pad_token_id: int, seed: int
) -> None:
    texts = [_encoded(tokens, seed + row) for row, tokens in enumerate(lengths)]
    length = max(lengths, default=1) + spare
    batch = pad_batch(texts, length, pad_token_id)
    for tensor in (batch.input_ids, batch.attention_mask, batch.token_type_ids):
        assert tensor.shape == (len(texts), length)
        assert tensor.dtype == np.int64
    for row, text in enumerate(texts):
        rest = length - len(text)
        assert batch.input_ids[row].tolist() == [*text.token_ids, *[pad_token_id] * rest]
        assert batch.attention_mask[row].tolist() == [1] * len(text) + [0] * rest
        assert batch.token_type_ids[row].tolist() == [*text.type_ids, *[0] * rest]


def test_a_text_longer_than_its_bucket_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        pad_batch([_encoded(2, 0), _encoded(5, 1)], 4, 0)
