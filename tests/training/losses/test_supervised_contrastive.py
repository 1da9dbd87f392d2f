"""SCL against a loop over pairs, in value and gradient, and at its edges."""

from __future__ import annotations

import torch
from hypothesis import given
from torch import Tensor

from tests.training.losses.contrastive_cases import (
    CASES,
    ContrastiveCase,
    assert_equal_with_gradients,
    slow_contrastive,
)
from training.losses.supervised_contrastive import supervised_contrastive


@given(CASES)
def test_equals_the_loop_over_pairs_in_value_and_gradient(case: ContrastiveCase) -> None:
    def slow() -> Tensor:
        return torch.stack(
            [
                slow_contrastive(list(points), case.labels.tolist(), [], [], case.temperature)
                for points in case.representations
            ]
        )

    assert_equal_with_gradients(
        lambda: supervised_contrastive(case.representations, case.labels, case.temperature),
        slow,
        [case.representations],
    )


def test_a_batch_without_positives_is_a_zero_that_keeps_the_graph() -> None:
    for batch in (1, 3):
        points = torch.randn(2, batch, 4, requires_grad=True)
        loss = supervised_contrastive(points, torch.arange(batch), 0.01)
        assert loss.tolist() == [0.0, 0.0]
        (gradient,) = torch.autograd.grad(loss.sum(), points)
        assert gradient.abs().max() == 0


def test_half_precision_points_give_finite_gradients_at_a_low_temperature() -> None:
    points = torch.randn(1, 6, 8, dtype=torch.bfloat16, requires_grad=True)
    loss = supervised_contrastive(points, torch.tensor([0, 0, 1, 1, 2, 2]), 0.01)
    assert loss.dtype == torch.float32
    (gradient,) = torch.autograd.grad(loss.sum(), points)
    assert torch.isfinite(loss).all()
    assert torch.isfinite(gradient).all()


def test_closer_positives_cost_less() -> None:
    near = torch.tensor([[[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]]])
    far = torch.tensor([[[1.0, 0.0], [-1.0, 0.1], [-1.0, 0.0], [1.0, 0.1]]])
    labels = torch.tensor([0, 0, 1, 1])
    assert supervised_contrastive(near, labels, 0.1) < supervised_contrastive(far, labels, 0.1)
