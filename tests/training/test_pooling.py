"""Pooling sees the real tokens only."""

from __future__ import annotations

import pytest
import torch

from training.pooling import PoolingName, make_pooling

MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])


@pytest.mark.parametrize("name", ["cls", "mean", "attention"])
def test_padding_changes_nothing(name: PoolingName) -> None:
    torch.manual_seed(0)
    pooling = make_pooling(name, 4)
    hidden = torch.randn(2, 3, 4)
    poisoned = hidden.clone()
    poisoned[1, 2] = 1e3
    torch.testing.assert_close(pooling(hidden, MASK), pooling(poisoned, MASK))
    alone = pooling(hidden[1:, :2], MASK[1:, :2])
    torch.testing.assert_close(pooling(hidden, MASK)[1:], alone)


def test_the_mean_is_over_real_tokens() -> None:
    hidden = torch.tensor([[[1.0], [2.0], [6.0]], [[1.0], [2.0], [100.0]]])
    assert make_pooling("mean", 1)(hidden, MASK).tolist() == [[3.0], [1.5]]


def test_cls_is_the_first_token() -> None:
    hidden = torch.tensor([[[1.0], [2.0], [6.0]], [[4.0], [2.0], [3.0]]])
    assert make_pooling("cls", 1)(hidden, MASK).tolist() == [[1.0], [4.0]]


def test_attention_weighs_by_a_learned_query() -> None:
    pooling = make_pooling("attention", 1)
    with torch.no_grad():
        for parameter in pooling.parameters():
            parameter.copy_(torch.full_like(parameter, 20.0))
    hidden = torch.tensor([[[0.0], [1.0], [0.5]]])
    pooled = pooling(hidden, torch.ones(1, 3, dtype=torch.int64))
    assert pooled.item() == pytest.approx(1.0, abs=1e-3)
    (gradient,) = torch.autograd.grad(pooled.sum(), [next(pooling.parameters())])
    assert gradient.abs().item() > 0
