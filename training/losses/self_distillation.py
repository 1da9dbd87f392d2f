"""Self-distillation: every exit learns the last exit's probabilities.

Source: Zhang et al. 2019, "Be your own teacher"; for exits of BERT, FastBERT (Liu et al. 2020).
"""

from __future__ import annotations

import torch
from torch import Tensor


def self_distillation(logits: Tensor, temperature: float) -> Tensor:
    """T² KL(p_last || p_m) of each exit m but the last, mean over the batch, in float32.

    logits [exits, batch, K] -> [exits - 1]; p is softmax(logits / T). T² keeps the gradient's size
    whatever the temperature (Hinton et al. 2015). No gradient reaches the last exit.
    """
    with torch.autocast(logits.device.type, enabled=False):
        log_p = torch.log_softmax(logits.float() / temperature, dim=-1)
        teacher = log_p[-1:].detach()
        divergence = (teacher.exp() * (teacher - log_p[:-1])).sum(dim=-1)
        return temperature**2 * divergence.mean(dim=1)
