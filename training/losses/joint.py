"""The total loss: every exit's terms, weighed.

Total = sum_m w_m [CE_m + lambda gate_m ACL_m] + mu sum_{m<M} w_m gate'_m CL_m
"""

from __future__ import annotations

from collections.abc import Sequence
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

    The angles (degrees, same shapes) that decided are None where nothing was decided. gradients:
    those at all parameters, where the decision needed them, so that nobody computes them twice.
    """

    contrastive: Tensor
    teacher: Tensor
    contrastive_degrees: Tensor | None = None
    teacher_degrees: Tensor | None = None
    gradients: TermGradients | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TermGradients:
    """Gradients of the terms' weighted sums over exits, a tensor a parameter, times `loss_scale`.

    contrastive, teacher: None where the method has no such term, or where it was dropped.
    """

    cross_entropy: Sequence[Tensor]
    contrastive: Sequence[Tensor] | None = None
    teacher: Sequence[Tensor] | None = None


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


def joint_gradients(
    gradients: TermGradients, *, contrastive_weight: float, teacher_weight: float
) -> list[Tensor]:
    """Gradients of `joint_loss` from those of its terms, whose memory it reuses.

    Valid for a gate that decides alike for all exits: then the total is linear in the terms.
    """
    joint = list(gradients.cross_entropy)
    for term, weight in (
        (gradients.contrastive, contrastive_weight),
        (gradients.teacher, teacher_weight),
    ):
        if term is not None:
            torch._foreach_add_(joint, list(term), alpha=weight)
    return joint
