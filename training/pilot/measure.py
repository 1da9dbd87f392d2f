"""Measures the angles of one mini-batch, group by group, without disturbing the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.batches import make_batch
from training.losses.aligned_contrastive import aligned_contrastive
from training.losses.cross_entropy import cross_entropy
from training.losses.supervised_contrastive import supervised_contrastive
from training.precision import autocast
from training.setup import Run

# The contrastive terms, each against cross-entropy.
TERMS = ("scl", "acl-embed")


def measure_angles(
    run: Run,
    rows: Sequence[int],
    exit_weights: Sequence[float],
    groups: Mapping[str, Sequence[int]],
) -> NDArray[np.float64]:
    """Degrees between the gradient of CE and that of each term, [terms, groups].

    Gradients are those of the sums over exits, weighed by exit_weights (w_m), at the rows of one
    mini-batch, with the very dropout masks that the next training step will draw. NaN where one
    of the two gradients is zero: there is no angle.
    """
    temperature = run.config.objective.temperature
    run.model.train()
    batch = make_batch(run.train, rows, run.model.pad_token_id, run.device)
    devices = [run.device] if run.device.type == "cuda" else []
    # Random generators are put back, so that the run goes on as if nobody had looked.
    with torch.random.fork_rng(devices):
        with autocast(run.device, run.precision):
            outputs = run.model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        points, embeddings = outputs.representations, outputs.label_embeddings
        weights = torch.tensor(exit_weights, device=run.device)
        losses = (
            cross_entropy(outputs.logits, batch.labels),
            supervised_contrastive(points, batch.labels, temperature),
            aligned_contrastive(points, embeddings, batch.labels, temperature),
        )
        scale = run.scaler.get_scale()
        reference, *others = (
            torch.autograd.grad(
                scale * (weights * loss).sum(),
                run.parameters,
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            for loss in losses
        )
    return np.stack([angles_by_group(reference, other, groups) for other in others])


def angles_by_group(
    first: Sequence[Tensor], second: Sequence[Tensor], groups: Mapping[str, Sequence[int]]
) -> NDArray[np.float64]:
    """Degrees between two gradients, [groups]; first and second: a tensor a parameter.

    groups: name to places in them. NaN where one of the two is zero, or not finite.
    """
    both, one, other = _dots(first, second), _dots(first, first), _dots(second, second)
    angles = []
    for places in groups.values():
        chosen = list(places)
        norms = np.sqrt(one[chosen].sum()) * np.sqrt(other[chosen].sum())
        cosine = both[chosen].sum() / norms if norms > 0 else np.nan
        angles.append(np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))))
    return np.array(angles)


def _dots(first: Sequence[Tensor], second: Sequence[Tensor]) -> NDArray[np.float64]:
    """Sum of products of each pair of tensors, [parameters]."""
    products = [
        torch.dot(a.float().flatten(), b.float().flatten()).double()
        for a, b in zip(first, second, strict=True)
    ]
    return torch.stack(products).cpu().numpy()
