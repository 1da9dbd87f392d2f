"""How an exit turns hidden states into one vector a text: first token, mean, or attention."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

PoolingName = Literal["cls", "mean", "attention"]


class FirstTokenPooling(nn.Module):
    """The hidden state of the first token, [batch, hidden]."""

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        return hidden[:, 0]


class MeanPooling(nn.Module):
    """Mean over the tokens that are not padding, [batch, hidden]."""

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        weights = attention_mask.to(hidden.dtype)
        return _weighted_sum(hidden, weights / weights.sum(dim=1, keepdim=True))


class AttentionPooling(nn.Module):
    """Mean over tokens weighted by a learned query, [batch, hidden]."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden_size, 1)

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        scores = self.query(hidden).squeeze(-1).float()
        scores = scores + (1.0 - attention_mask.to(scores.dtype)) * -1e4
        weights = torch.softmax(scores, dim=-1).to(hidden.dtype)
        return _weighted_sum(hidden, weights)


def _weighted_sum(hidden: Tensor, weights: Tensor) -> Tensor:
    """[batch, length, hidden] and [batch, length] -> [batch, hidden].

    A product of matrices, not a sum over an axis: onnxruntime adds up a batch of one in another
    order than a larger batch, and the answer would depend on its neighbours (decision 004).
    """
    return torch.bmm(weights.unsqueeze(1), hidden).squeeze(1)


def make_pooling(name: PoolingName, hidden_size: int) -> nn.Module:
    """The pooling of this name."""
    if name == "cls":
        return FirstTokenPooling()
    if name == "mean":
        return MeanPooling()
    return AttentionPooling(hidden_size)
