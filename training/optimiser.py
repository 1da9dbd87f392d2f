"""AdamW with separate rates for backbone and exits, and the schedule of both."""

from __future__ import annotations

import torch
from torch import nn

from training.config import OptimiserConfig
from training.model import MultiExitModel


def make_optimiser(model: MultiExitModel, config: OptimiserConfig) -> torch.optim.AdamW:
    """Biases and layer norms are not decayed."""
    groups = []
    for part, rate in (
        (model.backbone, config.backbone_learning_rate),
        (model.heads, config.exit_learning_rate),
    ):
        trained = [parameter for parameter in part.parameters() if parameter.requires_grad]
        for decays in (True, False):
            chosen = [parameter for parameter in trained if (parameter.ndim >= 2) is decays]
            decay = config.weight_decay if decays else 0.0
            groups.append({"params": chosen, "lr": rate, "base_lr": rate, "weight_decay": decay})
    return torch.optim.AdamW(groups, fused=True)


def set_learning_rate(
    optimiser: torch.optim.Optimizer, *, step: int, steps: int, warmup_share: float
) -> None:
    """Linear warm-up from near 0 to the base rate, then linear decay to 0; step from 0.

    A function of the step alone, so that a resumed run needs no scheduler state.
    """
    warmup = max(1, round(warmup_share * steps))
    factor = min((step + 1) / warmup, (steps - step) / max(1, steps - warmup + 1))
    for group in optimiser.param_groups:
        group["lr"] = group["base_lr"] * factor


def clip_gradients(model: nn.Module, largest_norm: float) -> float:
    """Scales all gradients to a joint norm of at most `largest_norm`; returns what it was."""
    return float(nn.utils.clip_grad_norm_(model.parameters(), largest_norm))
