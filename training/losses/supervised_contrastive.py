"""SCL: supervised contrastive loss over the batch's representations (Gunel et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from training.losses.contrast import anchor_losses, cosine_similarity, mean_over_anchors


def supervised_contrastive(representations: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """representations [exits, batch, hidden], labels int64 [batch] -> [exits].

    An exact zero, with a graph, for a batch in which no two samples share a label.
    """
    same = labels[:, None] == labels[None, :]
    is_self = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    if len(labels) < 2:
        # One sample has nothing to be contrasted with.
        return representations.float().sum(dim=(1, 2)) * 0.0
    similarity = cosine_similarity(representations, representations)
    losses, has_positive = anchor_losses(similarity, same & ~is_self, is_self, temperature)
    return mean_over_anchors(losses, has_positive)
