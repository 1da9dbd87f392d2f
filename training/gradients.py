"""ACL-Grad: the angle between cross-entropy's and the contrastive gradient decides what is kept.

A contrastive term is dropped for a mini-batch whose angle is above the largest one allowed.
Scopes: `representation` looks at the gradients at one exit's representations and label
embeddings, exit by exit, nearly free; `parameters` at those of all trained parameters, the method
as described, at the cost of further backward passes. Source: Li and Zhu 2026; the agreement test
itself goes back to Du et al. 2018.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from training.losses.joint import ExitTerms, Gate, open_gate
from training.model import ExitBatch


def angle_degrees(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """Angle between two gradients, each given in pieces of equal shapes; a scalar in [0, 180].

    90 where one of them is zero: it opposes nothing, and helps nothing.
    """
    return angles_by_exit([piece[None] for piece in first], [piece[None] for piece in second])[0]


def angles_by_exit(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """As `angle_degrees`, exit by exit: pieces are [exits, ...]; returns [exits], float64."""
    norms = _dot(first, first).sqrt() * _dot(second, second).sqrt()
    cosine = _dot(first, second) / norms.clamp(min=1e-300)
    return torch.rad2deg(torch.acos(cosine.clamp(-1.0, 1.0)))


def representation_gate(terms: ExitTerms, batch: ExitBatch, largest_degrees: float) -> Gate:
    """Decides exit by exit, from gradients at that exit's representations and label embeddings."""
    at = (batch.representations, batch.label_embeddings)
    reference = _gradients(terms.cross_entropy.sum(), at)
    contrastive = teacher = None
    if terms.contrastive is not None:
        contrastive = angles_by_exit(reference, _gradients(terms.contrastive.sum(), at))
    if terms.teacher is not None:
        found = angles_by_exit(reference, _gradients(terms.teacher.sum(), at))
        # The last exit is the teacher: its side is detached, so it has no angle.
        teacher = found[:-1]
    return _gate(terms, contrastive, teacher, largest_degrees)


def parameter_gate(
    terms: ExitTerms,
    batch: ExitBatch,
    largest_degrees: float,
    *,
    weights: Tensor,
    parameters: Sequence[nn.Parameter],
) -> Gate:
    """Decides once a mini-batch for all exits, from gradients at all trained parameters.

    The gradients are those of the weighted sums over exits; weights [exits].
    """
    exits = len(terms.cross_entropy)
    reference = _gradients((weights * terms.cross_entropy).sum(), parameters)
    contrastive = teacher = None
    if terms.contrastive is not None:
        found = _gradients((weights * terms.contrastive).sum(), parameters)
        contrastive = angle_degrees(reference, found).expand(exits)
    if terms.teacher is not None:
        found = _gradients((weights[:-1] * terms.teacher).sum(), parameters)
        teacher = angle_degrees(reference, found).expand(exits - 1)
    return _gate(terms, contrastive, teacher, largest_degrees)


def _gate(
    terms: ExitTerms, contrastive: Tensor | None, teacher: Tensor | None, largest_degrees: float
) -> Gate:
    """Angles in degrees to decisions; what has no angle is kept."""
    kept = open_gate(len(terms.cross_entropy), terms.cross_entropy.device)
    return Gate(
        contrastive=kept.contrastive
        if contrastive is None
        else _keeps(contrastive, largest_degrees),
        teacher=kept.teacher if teacher is None else _keeps(teacher, largest_degrees),
        contrastive_degrees=contrastive,
        teacher_degrees=teacher,
    )


def _keeps(degrees: Tensor, largest_degrees: float) -> Tensor:
    return (degrees <= largest_degrees).float()


def _gradients(loss: Tensor, at: Sequence[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad(loss, list(at), retain_graph=True, allow_unused=True)
    return [
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(at, found, strict=True)
    ]


def _dot(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """Sum of products over all pieces, [exits]; in float64, where small squares do not vanish."""
    products = [
        (a.double() * b.double()).reshape(len(a), -1).sum(dim=1)
        for a, b in zip(first, second, strict=True)
    ]
    return torch.stack(products).sum(dim=0)
