"""Random contrastive batches, and the slow loss of one exit: loops over pairs, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ContrastiveCase:
    """Float64 leaves that ask for gradients: points [exits, batch, hidden], labels of the texts."""

    representations: Tensor
    label_embeddings: Tensor
    labels: Tensor
    temperature: float


def make_case(
    *, seed: int, exits: int, batch: int, classes: int, temperature: float, duplicate: bool
) -> ContrastiveCase:
    generator = torch.Generator().manual_seed(seed)
    hidden = 4
    points = torch.randn(exits, batch, hidden, generator=generator, dtype=torch.float64)
    if duplicate and batch > 1:
        points[:, 1] = points[:, 0]
    embeddings = torch.randn(exits, classes, hidden, generator=generator, dtype=torch.float64)
    return ContrastiveCase(
        representations=points.requires_grad_(),
        label_embeddings=embeddings.requires_grad_(),
        labels=torch.randint(classes, (batch,), generator=generator),
        temperature=temperature,
    )


CASES = st.builds(
    make_case,
    seed=st.integers(0, 2**31),
    exits=st.integers(2, 3),
    batch=st.integers(1, 6),
    classes=st.integers(2, 4),
    temperature=st.sampled_from([0.01, 0.1, 1.0]),
    duplicate=st.booleans(),
)


def slow_contrastive(
    anchors: Sequence[Tensor],
    anchor_labels: Sequence[int],
    others: Sequence[Tensor],
    other_labels: Sequence[int],
    temperature: float,
) -> Tensor:
    """Mean over anchors with a positive of -1/|P| sum_P log share; anchors are points too.

    Every point is an anchor or one of `others`; vectors [hidden]. A loop over pairs.
    """

    def cosine(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum() / ((a * a).sum().sqrt() * (b * b).sum().sqrt())

    points = [*anchors, *others]
    labels = [*anchor_labels, *other_labels]
    losses = []
    for i, anchor in enumerate(anchors):
        scores = {
            j: cosine(anchor, point) / temperature for j, point in enumerate(points) if j != i
        }
        positives = [j for j in scores if labels[j] == anchor_labels[i]]
        if not positives:
            continue
        largest = max(float(score.detach()) for score in scores.values())
        total = sum((score - largest).exp() for score in scores.values())
        log_total = torch.as_tensor(total).log() + largest
        losses.append(-sum(scores[j] - log_total for j in positives) / len(positives))
    if not losses:
        return torch.zeros((), dtype=torch.float64)
    return torch.as_tensor(sum(losses) / len(losses))


def assert_equal_with_gradients(
    fast: Callable[[], Tensor], slow: Callable[[], Tensor], leaves: Sequence[Tensor]
) -> None:
    """Same value and same gradients at every leaf; tolerances of float32 at these temperatures."""
    found, expected = fast(), slow()
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    # Uneven weights, so that exits mixed up are found out.
    weights = torch.arange(1, len(expected) + 1, dtype=torch.float64)
    got = torch.autograd.grad(
        (found.double() * weights).sum(), leaves, allow_unused=True, materialize_grads=True
    )
    want = torch.autograd.grad(
        (expected * weights).sum() + 0.0 * sum(leaf.sum() for leaf in leaves), leaves
    )
    for a, b in zip(got, want, strict=True):
        assert bool(torch.isfinite(a).all())
        largest = max(1.0, float(b.abs().max()))
        assert float((a - b).abs().max()) <= 2e-4 * largest
