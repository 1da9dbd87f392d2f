"""What contrastive losses share: cosine similarity, the loss of each anchor, and its mean.

All exits at once: every tensor has a leading axis [exits], and no Python loop runs over pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def cosine_similarity(anchors: Tensor, points: Tensor) -> Tensor:
    """[..., anchors, hidden] and [..., points, hidden] -> [..., anchors, points], in float32.

    float32 whatever autocast says: at temperature 0.01 half precision has no digits left.
    """
    with torch.autocast(anchors.device.type, enabled=False):
        left = F.normalize(anchors.float(), dim=-1)
        right = F.normalize(points.float(), dim=-1)
        return left @ right.transpose(-1, -2)


def anchor_losses(
    similarity: Tensor, positive: Tensor, is_self: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Loss of each anchor a, -1/|P(a)| sum_{p in P(a)} log [e^{s(a,p)/t} / S(a)].

    S(a) is the sum over all points b but a itself of e^{s(a,b)/t}.

    similarity [..., anchors, points]; positive and is_self bool [anchors, points]: points with
    the anchor's label (the anchor itself left out), and the anchor itself. Returns losses
    [..., anchors], 0 for an anchor without positives, and has_positive [anchors].
    Source: Khosla et al. 2020, L_out.
    """
    scaled = (similarity / temperature).masked_fill(is_self, float("-inf"))
    log_share = scaled - torch.logsumexp(scaled, dim=-1, keepdim=True)
    positives = positive.sum(dim=-1)
    # -inf at the anchor itself times 0 would be NaN; so it is filled before the sum.
    summed = log_share.masked_fill(~positive, 0.0).sum(dim=-1)
    return -summed / positives.clamp(min=1), positives > 0


def mean_over_anchors(losses: Tensor, has_positive: Tensor) -> Tensor:
    """Mean of [..., anchors] over those with a positive; a zero that keeps the graph for none."""
    return (losses * has_positive).sum(dim=-1) / has_positive.sum().clamp(min=1)


def check_labels(labels: Tensor, classes: int) -> None:
    """Raises ValueError for a label outside [0, classes)."""
    if labels.numel() and not (int(labels.min()) >= 0 and int(labels.max()) < classes):
        raise ValueError(f"labels must lie in 0..{classes - 1}")
