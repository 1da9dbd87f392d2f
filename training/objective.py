"""Which loss terms a method uses and how they are gated: chosen once, from the configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from training.config import ObjectiveConfig
from training.gradients import parameter_gate, representation_gate
from training.losses.aligned_contrastive import aligned_contrastive
from training.losses.contrastive_teacher import contrastive_teacher
from training.losses.cross_entropy import cross_entropy
from training.losses.joint import ExitTerms, Gate, joint_loss, open_gate
from training.losses.supervised_contrastive import supervised_contrastive
from training.model import ExitBatch

# Representations, label embeddings [exits, ...] and labels to a term [exits] or [exits - 1].
Term = Callable[[Tensor, Tensor, Tensor], Tensor]
GateRule = Callable[[ExitTerms, ExitBatch], Gate]


@dataclass(frozen=True, slots=True, eq=False)
class ObjectiveValue:
    """Loss of one mini-batch, with what made it up, for the log."""

    total: Tensor
    terms: ExitTerms
    gate: Gate


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """A method: its contrastive terms (None where it has none), its gate, its weights."""

    contrastive: Term | None
    teacher: Term | None
    gate: GateRule
    exit_weights: Tensor
    contrastive_weight: float
    teacher_weight: float

    def __call__(self, batch: ExitBatch, labels: Tensor) -> ObjectiveValue:
        """batch: outputs of every exit; labels int64 [batch]."""
        arguments = (batch.representations, batch.label_embeddings, labels)
        terms = ExitTerms(
            cross_entropy=cross_entropy(batch.logits, labels),
            contrastive=self.contrastive and self.contrastive(*arguments),
            teacher=self.teacher and self.teacher(*arguments),
        )
        gate = self.gate(terms, batch)
        total = joint_loss(
            terms,
            gate,
            weights=self.exit_weights,
            contrastive_weight=self.contrastive_weight,
            teacher_weight=self.teacher_weight,
        )
        return ObjectiveValue(total, terms, gate)


def make_objective(
    config: ObjectiveConfig,
    *,
    exits: int,
    parameters: Sequence[nn.Parameter],
    device: torch.device,
) -> Objective:
    """The objective that the configuration names."""
    temperature = config.temperature

    def scl(representations: Tensor, label_embeddings: Tensor, labels: Tensor) -> Tensor:
        return supervised_contrastive(representations, labels, temperature)

    acl = partial(aligned_contrastive, temperature=temperature)
    teacher = partial(contrastive_teacher, temperature=temperature)
    contrastive_terms: dict[str, Term | None] = {
        "ce": None,
        "ce+scl": scl,
        "acl-embed": acl,
        "acl-grad": acl,
        "acl-cl": acl,
    }
    weights = torch.tensor(
        config.exit_weights or [1.0 / exits] * exits, dtype=torch.float32, device=device
    )
    gated = config.method in ("acl-grad", "acl-cl") and config.gate != "none"
    return Objective(
        contrastive=contrastive_terms[config.method],
        teacher=teacher if config.method == "acl-cl" and exits > 1 else None,
        gate=_gate_rule(config, weights, parameters) if gated else _keep_all,
        exit_weights=weights,
        contrastive_weight=config.contrastive_weight,
        teacher_weight=config.teacher_weight,
    )


def _keep_all(terms: ExitTerms, batch: ExitBatch) -> Gate:
    return open_gate(len(terms.cross_entropy), terms.cross_entropy.device)


def _gate_rule(
    config: ObjectiveConfig, weights: Tensor, parameters: Sequence[nn.Parameter]
) -> GateRule:
    if config.gate == "representation":
        return partial(representation_gate, largest_degrees=config.largest_angle)

    def by_parameters(terms: ExitTerms, batch: ExitBatch) -> Gate:
        return parameter_gate(terms, weights, parameters, config.largest_angle)

    return by_parameters
