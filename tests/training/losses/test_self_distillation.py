"""Self-distillation against a slow loop, its zero, and where its gradients go."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.losses.self_distillation import self_distillation


def _slow(logits: list[list[list[float]]], temperature: float) -> list[float]:
    def softmax(row: list[float]) -> list[float]:
        top = max(row)
        powers = [math.exp((value - top) / temperature) for value in row]
        return [power / sum(powers) for power in powers]

    losses = []
    for exit_logits in logits[:-1]:
        rows = []
        for student, teacher in zip(exit_logits, logits[-1], strict=True):
            q, p = softmax(student), softmax(teacher)
            rows.append(sum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True)))
        losses.append(temperature**2 * sum(rows) / len(rows))
    return losses


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 2**31),
    exits=st.integers(2, 5),
    batch=st.integers(1, 6),
    classes=st.integers(2, 5),
    temperature=st.floats(0.5, 10),
)
def test_equals_a_slow_loop(
    seed: int, exits: int, batch: int, classes: int, temperature: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(exits, batch, classes, generator=generator)
    found = self_distillation(logits, temperature)
    assert found.tolist() == pytest.approx(_slow(logits.tolist(), temperature), abs=1e-4, rel=1e-4)


def test_the_teacher_itself_has_nothing_to_learn() -> None:
    row = torch.randn(1, 4, 3).expand(3, 4, 3)
    assert self_distillation(row, 2.0).tolist() == pytest.approx([0.0, 0.0], abs=1e-6)


def test_no_gradient_reaches_the_last_exit() -> None:
    logits = torch.randn(3, 4, 5, requires_grad=True)
    self_distillation(logits, 2.0).sum().backward()
    assert logits.grad is not None
    assert logits.grad[-1].abs().max() == 0
    assert logits.grad[:-1].abs().min() > 0


def test_gradients_equal_finite_differences() -> None:
    logits = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    teacher = logits.detach()[-1:]

    def loss(students: torch.Tensor) -> torch.Tensor:
        return self_distillation(torch.cat([students, teacher]), 3.0).sum()

    students = logits.detach()[:-1].float().requires_grad_()
    loss(students).backward()
    step = 1e-2
    for index in [(0, 0, 0), (1, 1, 3), (0, 1, 2)]:
        up, down = students.detach().clone(), students.detach().clone()
        up[index] += step
        down[index] -= step
        slope = (loss(up) - loss(down)) / (2 * step)
        assert students.grad is not None
        assert float(students.grad[index]) == pytest.approx(float(slope), abs=1e-2)
