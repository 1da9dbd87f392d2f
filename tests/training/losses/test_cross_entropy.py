"""Cross-entropy by exit against a loop over texts."""

from __future__ import annotations

import math

import torch

from training.losses.cross_entropy import cross_entropy


def test_every_exit_gets_the_mean_over_its_texts() -> None:
    logits = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 3, 2, 2, 1])
    slow = []
    for of_exit in logits.tolist():
        losses = []
        for row, label in zip(of_exit, labels.tolist(), strict=True):
            largest = max(row)
            total = sum(math.exp(value - largest) for value in row)
            losses.append(largest + math.log(total) - row[label])
        slow.append(sum(losses) / len(losses))
    torch.testing.assert_close(cross_entropy(logits, labels), torch.tensor(slow))


def test_half_precision_logits_are_judged_in_float32() -> None:
    # 49,984 in half precision; their difference is beyond it.
    logits = torch.tensor([[[50000.0, -50000.0]]], dtype=torch.float16)
    assert cross_entropy(logits, torch.tensor([1])).item() == 99_968.0
