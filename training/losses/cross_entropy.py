"""Cross-entropy of every exit."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """logits [exits, batch, K], labels int64 [batch] -> [exits], in float32."""
    exits, batch, classes = logits.shape
    flat = F.cross_entropy(
        logits.float().reshape(exits * batch, classes), labels.repeat(exits), reduction="none"
    )
    return flat.reshape(exits, batch).mean(dim=1)
