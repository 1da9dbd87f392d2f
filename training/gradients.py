"""ACL-Grad: the angle between cross-entropy's and the contrastive gradient decides what is kept.

A contrastive term is dropped for a mini-batch whose angle is above the largest one allowed.
Scopes: `representation` looks at the gradients at one exit's representations and label
embeddings, exit by exit, nearly free; `parameters` at those of all trained parameters, the method
as described, at the cost of further backward passes. Source: Li and Zhu 2026; the agreement test
itself goes back to Du et al. 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from training.losses.joint import ExitTerms, Gate, TermGradients, open_gate
from training.model import ExitBatch
from training.parallel import ALONE, Ranks


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


def representation_gate(
    terms: ExitTerms,
    batch: ExitBatch,
    weights: Tensor,
    loss_scale: float,
    *,
    largest_degrees: float,
    ranks: Ranks = ALONE,
) -> Gate:
    """Decides exit by exit, from gradients at that exit's representations and label embeddings.

    The exits' weights [exits] do not matter here. loss_scale keeps gradients in half precision
    from vanishing; angles do not depend on it. batch: this rank's own; the decision is that of
    the gradients of all ranks together.
    """
    at = (batch.representations, batch.label_embeddings)

    def gradients(loss: Tensor) -> Sequence[Tensor]:
        return ranks.whole_exit_gradients(_gradients(loss_scale * loss, at))

    reference = gradients(terms.cross_entropy.sum())
    contrastive = teacher = None
    if terms.contrastive is not None:
        found = gradients(terms.contrastive.sum())
        contrastive = ranks.as_first(angles_by_exit(reference, found))
    if terms.teacher is not None:
        found = gradients(terms.teacher.sum())
        # The last exit is the teacher: its side is detached, so it has no angle.
        teacher = ranks.as_first(angles_by_exit(reference, found)[:-1])
    return _gate(terms, contrastive, teacher, largest_degrees)


def parameter_gate(
    terms: ExitTerms,
    batch: ExitBatch,
    weights: Tensor,
    loss_scale: float,
    *,
    largest_degrees: float,
    parameters: Sequence[nn.Parameter],
    ranks: Ranks = ALONE,
) -> Gate:
    """Decides once a mini-batch for all exits, from gradients at all trained parameters.

    The gradients are those of the weighted sums over exits; weights [exits]. They are summed over
    ranks, and returned, so that the step needs no further backward pass.
    """
    exits = len(terms.cross_entropy)

    def gradients(loss: Tensor) -> Sequence[Tensor]:
        return ranks.summed(_gradients(loss_scale * loss, parameters))

    reference = gradients((weights * terms.cross_entropy).sum())
    contrastive = teacher = None
    contrastive_degrees = teacher_degrees = None
    if terms.contrastive is not None:
        contrastive = gradients((weights * terms.contrastive).sum())
        contrastive_degrees = ranks.as_first(angle_degrees(reference, contrastive))
        contrastive = contrastive if contrastive_degrees <= largest_degrees else None
        contrastive_degrees = contrastive_degrees.expand(exits)
    if terms.teacher is not None:
        teacher = gradients((weights[:-1] * terms.teacher).sum())
        teacher_degrees = ranks.as_first(angle_degrees(reference, teacher))
        teacher = teacher if teacher_degrees <= largest_degrees else None
        teacher_degrees = teacher_degrees.expand(exits - 1)
    gate = _gate(terms, contrastive_degrees, teacher_degrees, largest_degrees)
    return replace(gate, gradients=TermGradients(reference, contrastive, teacher))


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


def _gradients(loss: Tensor, at: Sequence[Tensor]) -> Sequence[Tensor]:
    return torch.autograd.grad(
        loss, list(at), retain_graph=True, allow_unused=True, materialize_grads=True
    )


def _dot(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """Sum of products over all pieces, [exits]; pieces are added up in float64.

    Within a piece in float32 at least: 20 million parameters in float64 take longer than a
    backward pass.
    """
    products = []
    for a, b in zip(first, second, strict=True):
        rows, columns = _wide(a).reshape(len(a), 1, -1), _wide(b).reshape(len(b), -1, 1)
        products.append(torch.bmm(rows, columns).flatten().double())
    return torch.stack(products).sum(dim=0)


def _wide(piece: Tensor) -> Tensor:
    return piece if piece.dtype == torch.float64 else piece.float()
