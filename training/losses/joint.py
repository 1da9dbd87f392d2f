"""The total loss: every exit's terms, weighed.

Total = sum_m w_m [CE_m + lambda gate_m ACL_m] + mu sum_{m<M} w_m gate'_m CL_m
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class ExitTerms:
    """Loss terms of a batch before weighing. contrastive, teacher: None where not in use.

    cross_entropy [exits], contrastive [exits], teacher [exits - 1].
    """

    cross_entropy: Tensor
    contrastive: Tensor | None = None
    teacher: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """1 where a contrastive term is kept, 0 where dropped: contrastive [exits], teacher [exits-1].

    The angles (degrees, same shapes) that decided are None where nothing was decided.
    """

    contrastive: Tensor
    teacher: Tensor
    contrastive_degrees: Tensor | None = None
    teacher_degrees: Tensor | None = None


def open_gate(exits: int, device: torch.device) -> Gate:
    """A gate that keeps every term."""
    return Gate(torch.ones(exits, device=device), torch.ones(exits - 1, device=device))


def joint_loss(
    terms: ExitTerms,
    gate: Gate,
    *,
    weights: Tensor,
    contrastive_weight: float,
    teacher_weight: float,
) -> Tensor:
    """Scalar total; weights [exits] are w_m, contrastive_weight lambda, teacher_weight mu."""
    total = (weights * terms.cross_entropy).sum()
    if terms.contrastive is not None:
        total = total + contrastive_weight * (weights * gate.contrastive * terms.contrastive).sum()
    if terms.teacher is not None:
        total = total + teacher_weight * (weights[:-1] * gate.teacher * terms.teacher).sum()
    return total
