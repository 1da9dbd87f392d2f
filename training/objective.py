"""Which loss terms a method uses and how they are gated: chosen once, from the configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from multi_exit.errors import ConfigurationError
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
    """A method: its contrastive terms (None where it has none), its gate, its weights.

    both_scopes: the gates by representation and by parameters, to measure what either would do.
    """

    contrastive: Term | None
    teacher: Term | None
    gate: GateRule
    both_scopes: tuple[GateRule, GateRule]
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
    """The objective that the configuration names.

    Raises ConfigurationError for another number of exit weights than exits.
    """
    if config.exit_weights is not None and len(config.exit_weights) != exits:
        raise ConfigurationError(
            f"{len(config.exit_weights)} exit_weights for {exits} exits; give one an exit"
        )
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
    representation = partial(representation_gate, largest_degrees=config.largest_angle)
    by_parameters = partial(
        parameter_gate,
        largest_degrees=config.largest_angle,
        weights=weights,
        parameters=[parameter for parameter in parameters if parameter.requires_grad],
    )
    gates: dict[str, GateRule] = {
        "representation": representation,
        "parameters": by_parameters,
        "none": keep_all,
    }
    gated = config.method in ("acl-grad", "acl-cl")
    return Objective(
        contrastive=contrastive_terms[config.method],
        teacher=teacher if config.method == "acl-cl" and exits > 1 else None,
        gate=gates[config.gate] if gated else keep_all,
        both_scopes=(representation, by_parameters),
        exit_weights=weights,
        contrastive_weight=config.contrastive_weight,
        teacher_weight=config.teacher_weight,
    )


def keep_all(terms: ExitTerms, batch: ExitBatch) -> Gate:
    """The gate of a method without one."""
    return open_gate(len(terms.cross_entropy), terms.cross_entropy.device)
