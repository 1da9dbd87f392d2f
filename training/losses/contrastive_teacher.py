"""ACL-CL: the last exit teaches the shallower ones in one augmented contrastive batch.

Source: Li and Zhu 2026. For every exit m but the last the points are
{h^(m), l^(m), h^(T), l^(T)}; anchors are the student's, and the teacher's side is detached.
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


def contrastive_teacher(
    representations: Tensor, label_embeddings: Tensor, labels: Tensor, temperature: float
) -> Tensor:
    """Loss of each student exit, [exits - 1]; shapes as `aligned_contrastive`.

    No gradient reaches the last exit through this loss. Raises ValueError for a label outside
    [0, K).
    """
    classes = label_embeddings.shape[1]
    check_labels(labels, classes)
    own = torch.cat([representations.float(), label_embeddings.float()], dim=1)
    students, teacher = own[:-1], own[-1:].detach()
    points = torch.cat([students, teacher.expand_as(students)], dim=1)
    own_labels = torch.cat([labels, torch.arange(classes, device=labels.device)])
    anchors = len(own_labels)
    same = own_labels[:, None] == own_labels.repeat(2)[None, :]
    is_self = torch.eye(anchors, 2 * anchors, dtype=torch.bool, device=labels.device)
    similarity = cosine_similarity(students, points)
    losses, has_positive = anchor_losses(similarity, same & ~is_self, is_self, temperature)
    return mean_over_anchors(losses, has_positive)
