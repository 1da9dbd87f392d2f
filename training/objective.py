"""Which loss terms a method uses and how they are gated: chosen once, from the configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from multi_exit.errors import ConfigurationError
from training.config import ObjectiveConfig
from training.gradients import parameter_gate, representation_gate
from training.losses.aligned_contrastive import aligned_contrastive
from training.losses.contrastive_teacher import contrastive_teacher
from training.losses.cross_entropy import cross_entropy
from training.losses.joint import ExitTerms, Gate, joint_gradients, joint_loss, open_gate
from training.losses.self_distillation import self_distillation
from training.losses.supervised_contrastive import supervised_contrastive
from training.model import ExitBatch
from training.parallel import ALONE, Ranks

# What every exit says and the labels to a term [exits] or [exits - 1].
Term = Callable[[ExitBatch, Tensor], Tensor]
# Terms, what they were computed from, the exits' weights w_m [exits], and the factor that keeps
# half precision from vanishing.
GateRule = Callable[[ExitTerms, ExitBatch, Tensor, float], Gate]


@dataclass(frozen=True, slots=True, eq=False)
class ObjectiveValue:
    """Loss of one mini-batch, with what made it up.

    gradients: those of the total at the parameters, times `loss_scale`, where the gate has them
    already; else None, and `total` is to be differentiated.
    """

    total: Tensor
    terms: ExitTerms
    gate: Gate
    gradients: Sequence[Tensor] | None = None

    def detached(self) -> ObjectiveValue:
        """The numbers alone, without graph and gradients, which are large."""
        contrastive, teacher = self.terms.contrastive, self.terms.teacher
        terms = ExitTerms(
            cross_entropy=self.terms.cross_entropy.detach(),
            contrastive=None if contrastive is None else contrastive.detach(),
            teacher=None if teacher is None else teacher.detach(),
        )
        return ObjectiveValue(self.total.detach(), terms, self.gate)


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """A method: its terms beside cross-entropy (None where it has none), its gate, its weights.

    both_scopes: the gates by representation and by parameters, to measure what either would do.
    ranks: the processes whose rows make up one mini-batch.
    """

    contrastive: Term | None
    teacher: Term | None
    gate: GateRule
    both_scopes: tuple[GateRule, GateRule]
    contrastive_weight: float
    teacher_weight: float
    ranks: Ranks = ALONE

    def __call__(
        self,
        batch: ExitBatch,
        labels: Tensor,
        exit_weights: Sequence[float],
        loss_scale: float = 1.0,
    ) -> ObjectiveValue:
        """batch: outputs of every exit; labels int64 [batch]; exit_weights: w_m, one an exit.

        With several ranks, `batch` holds this rank's rows, `labels` those of the global batch,
        and the value is that of the global batch. The total itself is not scaled.
        """
        whole = self.ranks.gather(batch, len(labels))
        terms = ExitTerms(
            cross_entropy=cross_entropy(whole.logits, labels),
            contrastive=self.contrastive and self.contrastive(whole, labels),
            teacher=self.teacher and self.teacher(whole, labels),
        )
        weights = torch.tensor(exit_weights, dtype=torch.float32, device=labels.device)
        gate = self.gate(terms, batch, weights, loss_scale)
        total = joint_loss(
            terms,
            gate,
            weights=weights,
            contrastive_weight=self.contrastive_weight,
            teacher_weight=self.teacher_weight,
        )
        gradients = None
        if gate.gradients is not None:
            gradients = joint_gradients(
                gate.gradients,
                contrastive_weight=self.contrastive_weight,
                teacher_weight=self.teacher_weight,
            )
        return ObjectiveValue(total, terms, replace(gate, gradients=None), gradients)


def make_objective(
    config: ObjectiveConfig,
    *,
    exits: int,
    parameters: Sequence[nn.Parameter],
    ranks: Ranks = ALONE,
) -> Objective:
    """The objective that the configuration names.

    Raises ConfigurationError for another number of exit weights than exits.
    """
    if config.exit_weights is not None and len(config.exit_weights) != exits:
        raise ConfigurationError(
            f"{len(config.exit_weights)} exit_weights for {exits} exits; give one an exit"
        )
    representation = partial(representation_gate, largest_degrees=config.largest_angle, ranks=ranks)
    by_parameters = partial(
        parameter_gate,
        largest_degrees=config.largest_angle,
        parameters=[parameter for parameter in parameters if parameter.requires_grad],
        ranks=ranks,
    )
    gates: dict[str, GateRule] = {
        "representation": representation,
        "parameters": by_parameters,
        "none": keep_all,
    }
    contrastive, teacher = _terms(config)
    gated = config.method in ("acl-grad", "acl-cl")
    return Objective(
        contrastive=contrastive,
        # A single exit has nobody to teach.
        teacher=teacher if exits > 1 else None,
        gate=gates[config.gate] if gated else keep_all,
        both_scopes=(representation, by_parameters),
        contrastive_weight=config.contrastive_weight,
        teacher_weight=config.teacher_weight,
        ranks=ranks,
    )


def _terms(config: ObjectiveConfig) -> tuple[Term | None, Term | None]:
    """The contrastive and the teacher's term of the configured method."""
    temperature = config.temperature

    def scl(batch: ExitBatch, labels: Tensor) -> Tensor:
        return supervised_contrastive(batch.representations, labels, temperature)

    def acl(batch: ExitBatch, labels: Tensor) -> Tensor:
        return aligned_contrastive(
            batch.representations, batch.label_embeddings, labels, temperature
        )

    def contrast(batch: ExitBatch, labels: Tensor) -> Tensor:
        return contrastive_teacher(
            batch.representations, batch.label_embeddings, labels, temperature
        )

    def distil(batch: ExitBatch, labels: Tensor) -> Tensor:
        return self_distillation(batch.logits, config.distillation_temperature)

    terms: dict[str, tuple[Term | None, Term | None]] = {
        "ce": (None, None),
        "deebert": (None, None),
        "berxit": (None, None),
        "self-distillation": (None, distil),
        "ce+scl": (scl, None),
        "acl-embed": (acl, None),
        "acl-grad": (acl, None),
        "acl-cl": (acl, contrast),
    }
    return terms[config.method]


def keep_all(terms: ExitTerms, batch: ExitBatch, weights: Tensor, loss_scale: float) -> Gate:
    """The gate of a method without one."""
    return open_gate(len(terms.cross_entropy), terms.cross_entropy.device)


def differentiate(
    value: ObjectiveValue,
    parameters: Sequence[nn.Parameter],
    scaler: torch.amp.GradScaler,
    ranks: Ranks = ALONE,
) -> None:
    """Fills the parameters' gradients with those of the total, scaled, and summed over ranks."""
    if value.gradients is None:
        torch.autograd.backward(scaler.scale(value.total))
        ranks.sum_gradients(parameters)
        return
    # Lets the scaler know its device; these gradients were scaled when they were computed.
    scaler.scale(value.total.detach())
    for parameter, gradient in zip(parameters, value.gradients, strict=True):
        # As autograd itself would leave them: the fused AdamW reads memory and ignores strides.
        parameter.grad = gradient.contiguous()
