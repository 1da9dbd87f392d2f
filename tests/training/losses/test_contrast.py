"""Similarity and the anchors' mean: precision, scale, and what has no positive."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.losses.contrast import anchor_losses, cosine_similarity, mean_over_anchors


def _points(rows: int, seed: int) -> torch.Tensor:
    return torch.randn(2, rows, 8, generator=torch.Generator().manual_seed(seed))


def test_similarity_is_exact_whatever_autocast_says() -> None:
    anchors, points = _points(3, 0), _points(5, 1)
    expected = cosine_similarity(anchors, points)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = cosine_similarity(anchors, points)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_half_precision_points_are_compared_in_float32() -> None:
    anchors, points = _points(3, 0).bfloat16(), _points(5, 1).bfloat16()
    found = cosine_similarity(anchors, points)
    assert torch.equal(found, cosine_similarity(anchors.float(), points.float()))


@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
def test_similarity_does_not_see_the_length_of_vectors(scale: float, seed: int) -> None:
    anchors, points = _points(3, seed), _points(4, seed + 1)
    torch.testing.assert_close(
        cosine_similarity(anchors * scale, points), cosine_similarity(anchors, points)
    )


def test_a_vector_of_zeros_is_like_nothing_and_has_a_finite_gradient() -> None:
    points = torch.zeros(1, 2, 4, requires_grad=True)
    similarity = cosine_similarity(points, points)
    assert similarity.abs().max() == 0
    (gradient,) = torch.autograd.grad(similarity.sum(), points)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("temperature", [0.01, 0.001])
def test_opposite_and_equal_points_stay_finite_at_low_temperatures(temperature: float) -> None:
    similarity = torch.tensor([[1.0, 1.0, -1.0], [1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])
    similarity.requires_grad_()
    is_self = torch.eye(3, dtype=torch.bool)
    # The last anchor's only positive lies opposite, its negative elsewhere too.
    positive = torch.tensor([[0, 1, 0], [1, 0, 0], [1, 0, 0]], dtype=torch.bool)
    losses, has_positive = anchor_losses(similarity, positive, is_self, temperature)
    assert has_positive.all()
    assert losses.tolist() == pytest.approx([0.0, 0.0, 0.6931], abs=1e-4)
    (gradient,) = torch.autograd.grad(losses.sum(), similarity)
    assert torch.isfinite(gradient).all()


def test_anchors_without_a_positive_do_not_weigh_in_the_mean() -> None:
    losses = torch.tensor([[2.0, 0.0, 4.0]])
    assert mean_over_anchors(losses, torch.tensor([True, False, True])).tolist() == [3.0]
    assert mean_over_anchors(losses * 0, torch.tensor([False] * 3)).tolist() == [0.0]
