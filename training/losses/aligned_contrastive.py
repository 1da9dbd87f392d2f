"""ACL-Embed: label embeddings join the contrastive batch as samples of their own label.

Source: Li and Zhu 2026, aligned contrastive learning. A = {h_1..h_N, l_1..l_K}.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.losses.contrast import (
    anchor_losses,
    check_labels,
    cosine_similarity,
    mean_over_anchors,
)


def aligned_contrastive(
    representations: Tensor, label_embeddings: Tensor, labels: Tensor, temperature: float
) -> Tensor:
    """Mean over the anchors of A that have a positive, for each exit.

    representations [exits, batch, hidden], label_embeddings [exits, K, hidden], labels int64
    [batch] -> [exits]. Defined for a batch of one, whose positive is its label embedding.
    Gradients reach both tensors. Raises ValueError for a label outside [0, K).
    """
    classes = label_embeddings.shape[1]
    check_labels(labels, classes)
    points = torch.cat([representations.float(), label_embeddings.float()], dim=1)
    point_labels = torch.cat([labels, torch.arange(classes, device=labels.device)])
    same = point_labels[:, None] == point_labels[None, :]
    is_self = torch.eye(len(point_labels), dtype=torch.bool, device=labels.device)
    similarity = cosine_similarity(points, points)
    losses, has_positive = anchor_losses(similarity, same & ~is_self, is_self, temperature)
    return mean_over_anchors(losses, has_positive)
