"""ACL-CL against a loop over student and teacher points, and its detached teacher."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from torch import Tensor

from tests.training.losses.contrastive_cases import (
    CASES,
    ContrastiveCase,
    assert_equal_with_gradients,
    slow_contrastive,
)
from training.losses.contrastive_teacher import contrastive_teacher


@given(CASES)
def test_equals_the_loop_over_student_and_teacher_points(case: ContrastiveCase) -> None:
    classes = case.label_embeddings.shape[1]
    labels = [*case.labels.tolist(), *range(classes)]

    def slow() -> Tensor:
        teacher = [
            *case.representations[-1].detach().unbind(),
            *case.label_embeddings[-1].detach().unbind(),
        ]
        return torch.stack(
            [
                slow_contrastive(
                    [*case.representations[exit_], *case.label_embeddings[exit_]],
                    labels,
                    teacher,
                    labels,
                    case.temperature,
                )
                for exit_ in range(len(case.representations) - 1)
            ]
        )

    assert_equal_with_gradients(
        lambda: contrastive_teacher(
            case.representations, case.label_embeddings, case.labels, case.temperature
        ),
        slow,
        [case.representations, case.label_embeddings],
    )


def test_nothing_reaches_the_teacher() -> None:
    points = torch.randn(3, 4, 8, requires_grad=True)
    embeddings = torch.randn(3, 2, 8, requires_grad=True)
    loss = contrastive_teacher(points, embeddings, torch.tensor([0, 1, 1, 0]), 0.1)
    assert loss.shape == (2,)
    for gradient in torch.autograd.grad(loss.sum(), [points, embeddings]):
        assert gradient[-1].abs().max() == 0
        assert (gradient[:-1].abs().amax(dim=(1, 2)) > 0).all()


@pytest.mark.parametrize("label", [-1, 2])
def test_a_label_outside_the_classifier_is_refused(label: int) -> None:
    with pytest.raises(ValueError, match=r"0\.\.1"):
        contrastive_teacher(torch.randn(2, 1, 4), torch.randn(2, 2, 4), torch.tensor([label]), 0.1)
