"""Everything a run needs before its first step, made from the configuration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import nn

from multi_exit.errors import ConfigurationError
from multi_exit.text_encoder import TextEncoder
from training.backbone import load_backbone
from training.backbone_source import load_tokenizer, resolve_backbone
from training.batches import EncodedSplit, batches_an_epoch
from training.config import TrainingConfig
from training.data import Splits, load_splits
from training.evaluate import encode_split
from training.model import MultiExitModel
from training.objective import Objective, make_objective
from training.optimiser import make_optimiser
from training.parallel import ALONE, Ranks
from training.precision import choose_device, choose_precision


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """The parts of a run. Model, optimiser and scaler are the only ones that change.

    ranks: this process among those that train together; all hold the same texts.
    """

    config: TrainingConfig
    splits: Splits
    tokenizer: Tokenizer
    device: torch.device
    precision: str
    model: MultiExitModel
    objective: Objective
    optimiser: torch.optim.AdamW
    scaler: torch.amp.GradScaler
    train: EncodedSplit
    validation: EncodedSplit
    ranks: Ranks = ALONE

    @property
    def parameters(self) -> list[nn.Parameter]:
        """All trained parameters, in the order in which the objective differentiates."""
        return trained_parameters(self.model)

    @property
    def steps_an_epoch(self) -> int:
        return batches_an_epoch(len(self.train), self.config.run.batch_size)

    @property
    def steps(self) -> int:
        """Mini-batches of the whole run, if nothing stops it early."""
        return self.steps_an_epoch * self.config.run.epochs


def set_up(config: TrainingConfig, ranks: Ranks = ALONE) -> Run:
    """Reads data and backbone and makes the rest. Raises DataError and ConfigurationError."""
    splits = load_splits(config.data)
    source = resolve_backbone(config.model)
    tokenizer = load_tokenizer(source)
    device = ranks.device or choose_device(config.run.device)
    precision = choose_precision(config.run.precision, device)
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    # The seed decides the new exits and every dropout mask.
    torch.manual_seed(config.run.seed)
    model = _make_model(config, source, len(splits.labels)).to(device)
    _check_tokens_fit(config, model, tokenizer)
    encoder = TextEncoder(
        tokenizer,
        max_length=config.model.max_length,
        pad_token_id=model.pad_token_id,
        unicode_form=config.model.unicode_form,
    )
    return Run(
        config=config,
        splits=splits,
        tokenizer=tokenizer,
        device=device,
        precision=precision,
        model=model,
        objective=make_objective(
            config.objective,
            exits=len(model.exits),
            parameters=trained_parameters(model),
            ranks=ranks,
        ),
        optimiser=make_optimiser(model, config.optimiser),
        scaler=torch.amp.GradScaler(device.type, enabled=precision == "fp16"),
        train=encode_split(encoder, splits.train, splits.labels, "training"),
        validation=encode_split(encoder, splits.validation, splits.labels, "validation"),
        ranks=ranks,
    )


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Parameters that the optimiser moves, in the model's own order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _make_model(config: TrainingConfig, source: str, labels: int) -> MultiExitModel:
    backbone = load_backbone(
        source, layers=config.model.layers, repeat_layers=config.model.repeat_layers
    )
    return MultiExitModel(
        backbone,
        exits=config.model.exits or range(1, len(backbone.layers) + 1),
        labels=labels,
        pooling=config.model.pooling,
        dropout=config.model.dropout,
    )


def _check_tokens_fit(config: TrainingConfig, model: MultiExitModel, tokenizer: Tokenizer) -> None:
    """Every token and position that a text may get must be in the model's tables."""
    longest = model.backbone.longest_text
    if longest is not None and config.model.max_length > longest:
        raise ConfigurationError(
            f"max_length = {config.model.max_length}, but the backbone has positions for {longest} "
            "tokens; lower it"
        )
    ids, rows = tokenizer.get_vocab_size(with_added_tokens=True), model.backbone.config.vocab_size
    if ids > rows:
        raise ConfigurationError(
            f"the tokenizer knows {ids} tokens, the backbone only {rows}; "
            "they do not belong together"
        )
