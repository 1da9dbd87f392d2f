"""The gate: angles against trigonometry, and decisions against separate backward passes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from training.gradients import angle_degrees, angles_by_exit, parameter_gate, representation_gate
from training.losses.joint import ExitTerms
from training.model import ExitBatch

# The representation gate decides exit by exit, whatever the weights.
UNWEIGHTED = torch.ones(4)


@given(degrees=st.floats(0, 180), scale=st.sampled_from([1e-12, 1.0, 1e6]))
def test_the_angle_is_that_of_trigonometry(degrees: float, scale: float) -> None:
    turned = [math.cos(math.radians(degrees)) * scale, math.sin(math.radians(degrees)) * scale]
    first = [torch.tensor([1.0, 0.0], dtype=torch.float64)]
    second = [torch.tensor(turned, dtype=torch.float64)]
    assert angle_degrees(first, second).item() == pytest.approx(degrees, abs=1e-5)


def test_pieces_count_as_one_long_vector() -> None:
    first = [torch.tensor([1.0]), torch.tensor([[0.0, 1.0]])]
    second = [torch.tensor([1.0]), torch.tensor([[1.0, 0.0]])]
    assert angle_degrees(first, second).item() == pytest.approx(60.0)


def test_exits_are_judged_apart() -> None:
    first = [torch.tensor([[1.0, 0.0], [1.0, 0.0]])]
    second = [torch.tensor([[0.0, 2.0], [-3.0, 0.0]])]
    assert angles_by_exit(first, second).tolist() == pytest.approx([90.0, 180.0])


def test_a_zero_gradient_stands_at_ninety_degrees() -> None:
    zero, other = [torch.zeros(3)], [torch.ones(3)]
    assert angle_degrees(zero, other).item() == 90.0
    assert angle_degrees(zero, zero).item() == 90.0


def _batch(turns: list[float]) -> tuple[ExitBatch, Tensor, Callable[[Tensor], Tensor]]:
    """Exits whose cross-entropy pulls along x, and terms that pull at these angles from it."""
    points = torch.zeros(len(turns), 1, 2, requires_grad=True)
    embeddings = torch.zeros(len(turns), 1, 2, requires_grad=True)
    batch = ExitBatch(points, embeddings, torch.zeros(len(turns), 1, 1))
    directions = torch.tensor(
        [[math.cos(math.radians(turn)), math.sin(math.radians(turn))] for turn in turns]
    )
    return batch, directions, lambda along: (points[:, 0] * along).sum(dim=1)


def test_the_representation_gate_drops_only_what_opposes_at_its_own_exit() -> None:
    batch, directions, pull = _batch([0.0, 89.0, 91.0, 180.0])
    terms = ExitTerms(
        cross_entropy=pull(torch.tensor([[1.0, 0.0]]).expand(4, 2)),
        contrastive=pull(directions),
        teacher=pull(directions)[:-1],
    )
    gate = representation_gate(terms, batch, UNWEIGHTED, 1.0, largest_degrees=90.0)
    assert gate.contrastive.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert gate.teacher.tolist() == [1.0, 1.0, 0.0]
    assert gate.contrastive_degrees is not None
    assert gate.contrastive_degrees.tolist() == pytest.approx([0.0, 89.0, 91.0, 180.0], abs=1e-3)


def test_the_largest_angle_is_a_setting_and_counts_as_kept() -> None:
    batch, directions, pull = _batch([0.0, 90.0, 100.0])
    terms = ExitTerms(
        cross_entropy=pull(torch.tensor([[1.0, 0.0]]).expand(3, 2)), contrastive=pull(directions)
    )
    assert representation_gate(
        terms, batch, UNWEIGHTED, 1.0, largest_degrees=180.0
    ).contrastive.tolist() == [
        1.0,
        1.0,
        1.0,
    ]
    assert representation_gate(
        terms, batch, UNWEIGHTED, 1.0, largest_degrees=95.0
    ).contrastive.tolist() == [
        1.0,
        1.0,
        0.0,
    ]
    assert representation_gate(
        terms, batch, UNWEIGHTED, 1.0, largest_degrees=45.0
    ).contrastive.tolist() == [
        1.0,
        0.0,
        0.0,
    ]


def test_a_term_without_gradient_opposes_nothing_and_is_kept() -> None:
    batch, _, pull = _batch([0.0])
    terms = ExitTerms(
        cross_entropy=pull(torch.tensor([[1.0, 0.0]])), contrastive=pull(torch.zeros(1, 2))
    )
    gate = representation_gate(terms, batch, UNWEIGHTED, 1.0, largest_degrees=90.0)
    assert gate.contrastive_degrees is not None
    assert gate.contrastive_degrees.tolist() == [90.0]
    assert gate.contrastive.tolist() == [1.0]


def test_a_gradient_that_is_not_a_number_is_dropped() -> None:
    batch, _, pull = _batch([0.0])
    along = torch.tensor([[1.0, 0.0]])
    terms = ExitTerms(cross_entropy=pull(along), contrastive=pull(along * float("nan")))
    assert representation_gate(
        terms, batch, UNWEIGHTED, 1.0, largest_degrees=180.0
    ).contrastive.tolist() == [0.0]


def test_terms_that_are_absent_are_kept_and_have_no_angle() -> None:
    batch, _, pull = _batch([0.0, 0.0])
    gate = representation_gate(
        ExitTerms(cross_entropy=pull(torch.ones(2, 2))),
        batch,
        UNWEIGHTED,
        1.0,
        largest_degrees=90.0,
    )
    assert gate.contrastive.tolist() == [1.0, 1.0]
    assert gate.teacher.tolist() == [1.0]
    assert gate.contrastive_degrees is None
    assert gate.teacher_degrees is None


def test_the_parameter_gate_looks_at_all_parameters_and_weights_at_once() -> None:
    parameters = [nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(2, 2))]
    unused = nn.Parameter(torch.randn(2))
    weights = torch.tensor([0.7, 0.3])

    def terms() -> ExitTerms:
        first, second = parameters
        return ExitTerms(
            cross_entropy=torch.stack([first.square().sum(), second.sum()]),
            contrastive=torch.stack([-first.sum(), second.square().sum()]),
            teacher=torch.stack([first[0] * second[0, 0]]),
        )

    def gradient(loss: Tensor) -> Tensor:
        pieces = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        return torch.cat([piece.flatten() for piece in pieces]).double()

    empty = torch.zeros(0)
    gate = parameter_gate(
        terms(),
        ExitBatch(empty, empty, empty),
        weights,
        1.0,
        largest_degrees=90.0,
        parameters=[*parameters, unused],
    )
    reference = gradient((weights * terms().cross_entropy).sum())
    contrastive, teacher = terms().contrastive, terms().teacher
    assert contrastive is not None
    assert teacher is not None
    assert gate.contrastive_degrees is not None
    assert gate.teacher_degrees is not None
    for found, other in (
        (gate.contrastive_degrees, gradient((weights * contrastive).sum())),
        (gate.teacher_degrees, gradient((weights[:-1] * teacher).sum())),
    ):
        cosine = torch.nn.functional.cosine_similarity(reference, other, dim=0)
        expected = math.degrees(math.acos(float(cosine)))
        assert found.tolist() == pytest.approx([expected] * len(found), abs=1e-4)


def test_an_angle_of_exactly_the_largest_is_kept() -> None:
    # Along the axes, so that the cosine is exactly 0 and the angle exactly 90.
    batch, _, pull = _batch([0.0])
    terms = ExitTerms(
        cross_entropy=pull(torch.tensor([[2.0, 0.0]])),
        contrastive=pull(torch.tensor([[0.0, 3.0]])),
    )
    gate = representation_gate(terms, batch, UNWEIGHTED, 1.0, largest_degrees=90.0)
    assert gate.contrastive_degrees is not None
    assert gate.contrastive_degrees.tolist() == [90.0]
    assert gate.contrastive.tolist() == [1.0]


def test_the_representation_gate_looks_at_label_embeddings_too() -> None:
    # Representations agree a little, label embeddings disagree a lot, and the other way round.
    points = torch.zeros(2, 1, 2, requires_grad=True)
    embeddings = torch.zeros(2, 1, 2, requires_grad=True)
    batch = ExitBatch(points, embeddings, torch.zeros(2, 1, 1))
    by_point, by_embedding = points[:, 0, 0], embeddings[:, 0, 0]
    share = torch.tensor([0.1, 3.0])
    terms = ExitTerms(
        cross_entropy=by_point + by_embedding, contrastive=share * by_point - by_embedding
    )
    gate = representation_gate(terms, batch, UNWEIGHTED, 1.0, largest_degrees=90.0)
    assert gate.contrastive.tolist() == [0.0, 1.0]


def test_the_parameter_gate_weighs_the_teacher_exit_by_exit() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    weights = torch.tensor([0.9, 0.1, 5.0])
    empty = torch.zeros(0)
    # The first student agrees, the second opposes twice as much: weights decide.
    terms = ExitTerms(
        cross_entropy=parameter[0].expand(3),
        teacher=torch.stack([parameter[0], -2.0 * parameter[0]]),
    )
    for given_weights, kept in ((weights, 1.0), (weights[[1, 0, 2]], 0.0)):
        gate = parameter_gate(
            terms,
            ExitBatch(empty, empty, empty),
            given_weights,
            1.0,
            largest_degrees=90.0,
            parameters=[parameter],
        )
        assert gate.teacher.tolist() == [kept, kept]


@given(seed=st.integers(0, 2**31), shapes=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_angles_equal_those_of_flattened_vectors(seed: int, shapes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    pieces = [[rng.standard_normal((size, 2)) for size in shapes] for _ in range(2)]
    first, second = (np.concatenate([piece.ravel() for piece in side]) for side in pieces)
    cosine = first @ second / (np.linalg.norm(first) * np.linalg.norm(second))
    found = angle_degrees(*([torch.from_numpy(piece) for piece in side] for side in pieces))
    assert found.item() == pytest.approx(np.degrees(np.arccos(np.clip(cosine, -1, 1))), abs=1e-6)
