"""Each method composed from its losses, as the formulas say."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from multi_exit.errors import ConfigurationError
from tests.conftest import FAMILIES, MakeBackbone
from tests.training.models import random_tokens, small_model
from training.config import Method, ObjectiveConfig
from training.gradients import representation_gate
from training.losses.aligned_contrastive import aligned_contrastive
from training.losses.contrastive_teacher import contrastive_teacher
from training.losses.cross_entropy import cross_entropy
from training.losses.joint import ExitTerms
from training.losses.supervised_contrastive import supervised_contrastive
from training.model import ExitBatch
from training.objective import Objective, differentiate, make_objective

EXITS, LABELS = 3, torch.tensor([0, 1, 1, 2, 0])
UNIFORM = [1 / EXITS] * EXITS


def _batch(seed: int = 0) -> ExitBatch:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(EXITS, len(LABELS), 8, generator=generator).tanh().requires_grad_()
    embeddings = torch.randn(EXITS, 3, 8, generator=generator).requires_grad_()
    return ExitBatch(points, embeddings, points @ embeddings.mT)


def _objective(**settings: object) -> Objective:
    config = ObjectiveConfig.model_validate(
        {"contrastive_weight": 0.3, "teacher_weight": 0.7, "temperature": 0.2, **settings}
    )
    return make_objective(config, exits=EXITS, parameters=[])


def _terms(batch: ExitBatch) -> dict[str, Tensor]:
    points, embeddings = batch.representations, batch.label_embeddings
    return {
        "ce": cross_entropy(batch.logits, LABELS),
        "scl": supervised_contrastive(points, LABELS, 0.2),
        "acl": aligned_contrastive(points, embeddings, LABELS, 0.2),
        "cl": contrastive_teacher(points, embeddings, LABELS, 0.2),
    }


def _by_hand(method: Method, batch: ExitBatch, weights: Tensor) -> Tensor:
    terms = _terms(batch)
    total = (weights * terms["ce"]).sum()
    if method == "ce":
        return total
    contrastive = terms["scl" if method == "ce+scl" else "acl"]
    gate, teacher_gate = torch.ones(EXITS), torch.ones(EXITS - 1)
    if method in ("acl-grad", "acl-cl"):
        found = representation_gate(
            ExitTerms(terms["ce"], contrastive, terms["cl"]),
            batch,
            torch.ones(EXITS),
            1.0,
            largest_degrees=90.0,
        )
        gate, teacher_gate = found.contrastive, found.teacher
    total = total + 0.3 * (weights * gate * contrastive).sum()
    if method == "acl-cl":
        total = total + 0.7 * (weights[:-1] * teacher_gate * terms["cl"]).sum()
    return total


@pytest.mark.parametrize("method", ["ce", "ce+scl", "acl-embed", "acl-grad", "acl-cl"])
def test_a_method_is_the_sum_of_its_terms(method: Method) -> None:
    for seed in range(5):
        batch = _batch(seed)
        value = _objective(method=method)(batch, LABELS, [0.5, 0.25, 0.25])
        expected = _by_hand(method, batch, torch.tensor([0.5, 0.25, 0.25]))
        torch.testing.assert_close(value.total, expected)
        leaves = [batch.representations, batch.label_embeddings]
        found = torch.autograd.grad(value.total, leaves, retain_graph=True)
        torch.testing.assert_close(found, torch.autograd.grad(expected, leaves))


def test_weights_are_uniform_where_absent() -> None:
    batch = _batch()
    value = _objective(method="ce")(batch, LABELS, UNIFORM)
    torch.testing.assert_close(value.total, cross_entropy(batch.logits, LABELS).mean())


def test_a_dropped_term_leaves_no_gradient() -> None:
    # No angle is 0 or less between such terms, so everything is dropped.
    batch = _batch()
    dropped = _objective(method="acl-cl", largest_angle=0.0)(batch, LABELS, UNIFORM)
    plain = _objective(method="ce")(batch, LABELS, UNIFORM)
    assert dropped.gate.contrastive.sum() == 0
    assert dropped.gate.teacher.sum() == 0
    leaves = [batch.representations, batch.label_embeddings]
    found = torch.autograd.grad(dropped.total, leaves, retain_graph=True)
    torch.testing.assert_close(found, torch.autograd.grad(plain.total, leaves))


def test_the_gate_itself_is_not_differentiated() -> None:
    value = _objective(method="acl-cl")(_batch(), LABELS, UNIFORM)
    assert not value.gate.contrastive.requires_grad
    assert not value.gate.teacher.requires_grad


def test_one_exit_has_no_teacher() -> None:
    config = ObjectiveConfig(method="acl-cl")
    objective = make_objective(config, exits=1, parameters=[])
    batch = _batch()
    alone = ExitBatch(batch.representations[:1], batch.label_embeddings[:1], batch.logits[:1])
    value = objective(alone, LABELS, [1.0])
    assert value.terms.teacher is None
    assert torch.isfinite(value.total)


def test_weights_of_another_number_than_exits_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="2 exit_weights for 3 exits"):
        _objective(exit_weights=[0.5, 0.5])


@pytest.mark.parametrize("largest_angle", [0.0, 90.0, 180.0])
@pytest.mark.parametrize("method", ["acl-grad", "acl-cl"])
def test_gradients_of_the_parameters_scope_are_those_of_its_total(
    method: Method, largest_angle: float
) -> None:
    torch.manual_seed(3)
    first, unused = torch.nn.Linear(6, 8), torch.nn.Parameter(torch.ones(2))
    embeddings = torch.nn.Parameter(torch.randn(EXITS, 3, 8))
    parameters = [*first.parameters(), embeddings, unused]
    config = ObjectiveConfig(
        method=method,
        gate="parameters",
        largest_angle=largest_angle,
        contrastive_weight=0.3,
        teacher_weight=0.7,
    )
    objective = make_objective(config, exits=EXITS, parameters=parameters)
    points = first(torch.randn(EXITS, len(LABELS), 6)).tanh()
    batch = ExitBatch(points, embeddings, points @ embeddings.mT)
    value = objective(batch, LABELS, [0.5, 0.25, 0.25], 8.0)
    expected = torch.autograd.grad(
        value.total, parameters, allow_unused=True, materialize_grads=True
    )
    differentiate(value, parameters, torch.amp.GradScaler("cpu", enabled=False))
    for parameter, gradient in zip(parameters, expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, 8.0 * gradient, atol=1e-5, rtol=1e-4)


def test_the_parameters_scope_decides_once_for_all_exits() -> None:
    batch = _batch()
    parameter = torch.nn.Parameter(torch.ones(()))
    scaled = ExitBatch(
        batch.representations * parameter, batch.label_embeddings, batch.logits * parameter
    )
    config = ObjectiveConfig(method="acl-cl", gate="parameters")
    objective = make_objective(config, exits=EXITS, parameters=[parameter])
    gate = objective(scaled, LABELS, UNIFORM).gate
    assert gate.contrastive_degrees is not None
    assert len(set(gate.contrastive_degrees.tolist())) == 1


def test_parameters_that_are_not_trained_have_no_say_in_the_gate() -> None:
    batch = _batch()
    trained, frozen = torch.nn.Parameter(torch.ones(())), torch.nn.Parameter(torch.ones(()))
    frozen.requires_grad_(False)
    scaled = ExitBatch(
        batch.representations * trained, batch.label_embeddings, batch.logits * trained
    )
    config = ObjectiveConfig(method="acl-grad", gate="parameters")
    objective = make_objective(config, exits=EXITS, parameters=[frozen, trained])
    assert objective(scaled, LABELS, UNIFORM).gate.contrastive_degrees is not None


@pytest.mark.parametrize("method", ["ce+scl", "acl-embed", "acl-grad", "acl-cl"])
def test_without_weight_every_method_is_plain_cross_entropy(method: Method) -> None:
    batch = _batch()
    silent = _objective(method=method, contrastive_weight=0.0, teacher_weight=0.0)(
        batch, LABELS, UNIFORM
    )
    plain = _objective(method="ce")(batch, LABELS, UNIFORM)
    torch.testing.assert_close(silent.total, plain.total)
    leaves = [batch.representations, batch.label_embeddings]
    found = torch.autograd.grad(silent.total, leaves, retain_graph=True)
    torch.testing.assert_close(found, torch.autograd.grad(plain.total, leaves))


def test_a_gate_that_keeps_every_angle_makes_acl_grad_acl_embed() -> None:
    for seed in range(5):
        batch = _batch(seed)
        gated = _objective(method="acl-grad", largest_angle=180.0)(batch, LABELS, UNIFORM)
        plain = _objective(method="acl-embed")(batch, LABELS, UNIFORM)
        torch.testing.assert_close(gated.total, plain.total)


def test_without_a_gate_acl_cl_keeps_every_term() -> None:
    value = _objective(method="acl-cl", gate="none", largest_angle=0.0)(_batch(), LABELS, UNIFORM)
    assert value.gate.contrastive.tolist() == [1.0] * EXITS
    assert value.gate.teacher.tolist() == [1.0] * (EXITS - 1)
    assert value.gate.contrastive_degrees is None


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_the_parameters_scope_hold_for_real_models(
    make_backbone: MakeBackbone, family: str
) -> None:
    # Gradients that share memory would be added up twice.
    model = small_model(make_backbone(family))
    parameters = list(model.parameters())
    config = ObjectiveConfig(method="acl-cl", gate="parameters", largest_angle=180.0)
    objective = make_objective(config, exits=EXITS, parameters=parameters)
    vocabulary = model.backbone.config.vocab_size
    outputs = model(**random_tokens(5, 9, vocabulary=vocabulary, pad=model.pad_token_id))
    value = objective(outputs, LABELS, UNIFORM)
    expected = torch.autograd.grad(
        value.total, parameters, allow_unused=True, materialize_grads=True
    )
    differentiate(value, parameters, torch.amp.GradScaler("cpu", enabled=False))
    for (name, parameter), gradient in zip(model.named_parameters(), expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(
            parameter.grad, gradient, atol=1e-5, rtol=1e-3, msg=lambda text, name=name: name + text
        )
        # A fused optimiser would read a transposed gradient as if it were none.
        assert parameter.grad.stride() == parameter.stride(), name
