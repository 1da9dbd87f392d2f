"""ACL-Embed against a loop over the augmented set, in value and gradient, and at its edges."""

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
from training.losses.aligned_contrastive import aligned_contrastive


@given(CASES)
def test_equals_the_loop_over_the_augmented_set(case: ContrastiveCase) -> None:
    classes = case.label_embeddings.shape[1]

    def slow() -> Tensor:
        return torch.stack(
            [
                slow_contrastive(
                    [*points, *embeddings],
                    [*case.labels.tolist(), *range(classes)],
                    [],
                    [],
                    case.temperature,
                )
                for points, embeddings in zip(
                    case.representations, case.label_embeddings, strict=True
                )
            ]
        )

    assert_equal_with_gradients(
        lambda: aligned_contrastive(
            case.representations, case.label_embeddings, case.labels, case.temperature
        ),
        slow,
        [case.representations, case.label_embeddings],
    )


def test_one_text_is_drawn_to_its_label_embedding() -> None:
    text = torch.tensor([[[0.0, 1.0]]], requires_grad=True)
    embeddings = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]], requires_grad=True)
    loss = aligned_contrastive(text, embeddings, torch.tensor([0]), 0.1)
    assert loss.item() > 0
    towards, moved = torch.autograd.grad(loss.sum(), [text, embeddings])
    assert towards[0, 0, 0] < 0, "descent moves the text towards its label embedding"
    assert moved[0, 0].abs().max() > 0, "gradients reach the label embeddings"


@pytest.mark.parametrize("label", [-1, 2])
def test_a_label_outside_the_classifier_is_refused(label: int) -> None:
    with pytest.raises(ValueError, match=r"0\.\.1"):
        aligned_contrastive(torch.randn(1, 1, 4), torch.randn(1, 2, 4), torch.tensor([label]), 0.1)
