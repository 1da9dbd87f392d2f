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

from training.losses.joint import ExitTerms, Gate
from training.model import ExitBatch


def angle_degrees(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """Angle between two gradients, each given in pieces of equal shapes; a scalar in [0, 180].

    90 where one of them is zero: it opposes nothing, and helps nothing.
    """
    product = sum((a.double() * b.double()).sum() for a, b in zip(first, second, strict=True))
    norms = _norm(first) * _norm(second)
    cosine = torch.as_tensor(product) / norms.clamp(min=1e-300)
    return torch.rad2deg(torch.acos(cosine.clamp(-1.0, 1.0)))


def angles_by_exit(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """As `angle_degrees`, exit by exit: pieces are [exits, ...]; returns [exits]."""
    return torch.stack(
        [
            angle_degrees([a[exit_] for a in first], [b[exit_] for b in second])
            for exit_ in range(len(first[0]))
        ]
    )


def representation_gate(terms: ExitTerms, batch: ExitBatch, largest_degrees: float) -> Gate:
    """Decides exit by exit, from gradients at that exit's representations and label embeddings."""
    at = (batch.representations, batch.label_embeddings)
    reference = _gradients(terms.cross_entropy.sum(), at)
    device = terms.cross_entropy.device
    exits = len(terms.cross_entropy)
    contrastive = torch.zeros(exits, dtype=torch.float64, device=device)
    teacher = torch.zeros(exits - 1, dtype=torch.float64, device=device)
    if terms.contrastive is not None:
        contrastive = angles_by_exit(reference, _gradients(terms.contrastive.sum(), at))
    if terms.teacher is not None:
        found = angles_by_exit(reference, _gradients(terms.teacher.sum(), at))
        # The last exit is the teacher: its side is detached, so it has no angle.
        teacher = found[:-1]
    return _gate(contrastive, teacher, largest_degrees)


def parameter_gate(
    terms: ExitTerms, weights: Tensor, parameters: Sequence[nn.Parameter], largest_degrees: float
) -> Gate:
    """Decides once a mini-batch for all exits, from gradients at all trained parameters."""
    exits = len(terms.cross_entropy)
    reference = _gradients((weights * terms.cross_entropy).sum(), parameters)
    device = terms.cross_entropy.device
    contrastive = torch.zeros((), dtype=torch.float64, device=device)
    teacher = torch.zeros((), dtype=torch.float64, device=device)
    if terms.contrastive is not None:
        found = _gradients((weights * terms.contrastive).sum(), parameters)
        contrastive = angle_degrees(reference, found)
    if terms.teacher is not None:
        found = _gradients((weights[:-1] * terms.teacher).sum(), parameters)
        teacher = angle_degrees(reference, found)
    return _gate(contrastive.expand(exits), teacher.expand(exits - 1), largest_degrees)


def _gate(contrastive: Tensor, teacher: Tensor, largest_degrees: float) -> Gate:
    return Gate(
        contrastive=(contrastive <= largest_degrees).float(),
        teacher=(teacher <= largest_degrees).float(),
        contrastive_degrees=contrastive,
        teacher_degrees=teacher,
    )


def _gradients(loss: Tensor, at: Sequence[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad(loss, list(at), retain_graph=True, allow_unused=True)
    return [
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(at, found, strict=True)
    ]


def _norm(pieces: Sequence[Tensor]) -> Tensor:
    return torch.as_tensor(sum(piece.double().square().sum() for piece in pieces)).sqrt()
