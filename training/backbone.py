"""A pretrained encoder taken apart into embeddings and layers: where families differ.

The same path trains and is exported: own additive mask, one layer at a time. A probe compares it
with the model's own forward, so that an architecture that it does not fit is refused.
"""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from multi_exit.errors import ConfigurationError

# Large enough to silence a token, small enough not to overflow half precision when added up.
_MASKED = -1e4
# Relative to the largest hidden state. The probe runs the very same operations as the encoder, so
# only the mask's size may leave a trace; without padding the kernels sum in another order.
_PROBE_TOLERANCE = 1e-5
_PADDING_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class LayerContext:
    """What every layer needs beside the hidden states.

    mask: additive, [batch, 1, 1, length]. position_bias: [1, heads, length, length] or None.
    """

    mask: Tensor
    position_bias: Tensor | None


class Backbone(nn.Module):
    """Embeddings and a stack of layers of any BERT-like encoder."""

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__()
        self.config: PretrainedConfig = encoder.config
        stack = _layer_stack(encoder)
        self.embeddings = encoder.get_submodule("embeddings")
        # ELECTRA's small models embed in fewer dimensions than their layers have.
        self.projection: Any = getattr(encoder, "embeddings_project", nn.Identity())
        self.layers: nn.ModuleList = stack.layer
        # MPNet: one table of relative positions for all layers.
        self.relative_attention_bias: nn.Embedding | None = getattr(
            stack, "relative_attention_bias", None
        )
        self._bucket = getattr(stack, "relative_position_bucket", None)
        self.takes_token_types = (
            "token_type_ids" in inspect.signature(self.embeddings.forward).parameters
            and getattr(self.config, "type_vocab_size", 0) > 0
        )

    @property
    def hidden_size(self) -> int:
        return int(self.config.hidden_size)

    @property
    def attention_heads(self) -> int:
        return int(self.config.num_attention_heads)

    @property
    def longest_text(self) -> int | None:
        """Tokens that the table of positions holds; None where there is no such table."""
        table = getattr(self.embeddings, "position_embeddings", None)
        if not isinstance(table, nn.Embedding):
            return None
        # RoBERTa's positions start after the padding id.
        return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """int64 [batch, length] -> [batch, length, hidden]."""
        if self.takes_token_types:
            # A one-row table (RoBERTa) has no second type to give.
            if token_type_ids is None or self.config.type_vocab_size == 1:
                token_type_ids = torch.zeros_like(input_ids)
            embedded = self.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
        else:
            embedded = self.embeddings(input_ids=input_ids)
        projected: Tensor = self.projection(embedded)
        return projected

    def context(self, hidden: Tensor, attention_mask: Tensor) -> LayerContext:
        """Additive mask and position bias of a batch; attention_mask int64 [batch, length]."""
        mask = (1.0 - attention_mask[:, None, None, :].to(hidden.dtype)) * _MASKED
        return LayerContext(mask, self._position_bias(hidden))

    def run_layer(self, index: int, hidden: Tensor, context: LayerContext) -> Tensor:
        """Layer `index`, counted from 0: [batch, length, hidden] to the same."""
        layer = self.layers[index]
        if context.position_bias is None:
            output = layer(hidden, context.mask)
        else:
            output = layer(hidden, context.mask, context.position_bias)
        result: Tensor = output[0] if isinstance(output, tuple) else output
        return result

    def _position_bias(self, hidden: Tensor) -> Tensor | None:
        if self.relative_attention_bias is None:
            return None
        positions = torch.arange(hidden.shape[1], device=hidden.device)
        relative = positions[None, :] - positions[:, None]
        assert self._bucket is not None, "a table of relative positions comes with its buckets"
        buckets = self._bucket(relative, num_buckets=self.relative_attention_bias.num_embeddings)
        bias: Tensor = self.relative_attention_bias(buckets)
        return bias.permute(2, 0, 1).unsqueeze(0).to(hidden.dtype)


def load_backbone(
    folder_or_name: str, *, layers: int | None = None, repeat_layers: int = 1
) -> Backbone:
    """Pretrained weights by hub name or local folder, safetensors only.

    layers keeps the first ones; repeat_layers uses each of those that many times in a row as
    initialisation. Raises ConfigurationError for a model that cannot be had or does not fit.
    """
    try:
        with _bar_on_terminals_only():
            encoder = AutoModel.from_pretrained(
                folder_or_name,
                attn_implementation="eager",
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
            )
    except (OSError, ValueError, ImportError) as error:
        raise ConfigurationError(
            f"cannot load the backbone {folder_or_name!r}: {error}. Give a hub name, a folder with "
            "config.json and model.safetensors, or package:IMPORT_NAME/FOLDER"
        ) from error
    return take_apart(encoder, layers=layers, repeat_layers=repeat_layers)


def take_apart(
    encoder: PreTrainedModel, *, layers: int | None = None, repeat_layers: int = 1
) -> Backbone:
    """Backbone of an encoder, after the probe. Raises ConfigurationError where it does not fit."""
    backbone = _probed(encoder)
    found = len(backbone.layers)
    if layers is not None and layers > found:
        raise ConfigurationError(f"layers = {layers}, but the backbone has only {found}")
    kept = list(backbone.layers)[: layers or found]
    backbone.layers = nn.ModuleList(
        layer if copy_number == 0 else copy.deepcopy(layer)
        for layer in kept
        for copy_number in range(repeat_layers)
    )
    backbone.config.num_hidden_layers = len(backbone.layers)
    return backbone


def empty_backbone(config_folder: Path) -> Backbone:
    """A backbone of the right shape, to load a checkpoint into. No probe: it was made by one."""
    config = AutoConfig.from_pretrained(config_folder, attn_implementation="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Backbone(AutoModel.from_config(config, attn_implementation="eager"))  # type: ignore[no-untyped-call]


def _layer_stack(encoder: PreTrainedModel) -> Any:
    for name in ("encoder", "transformer"):
        stack = getattr(encoder, name, None)
        has_layers = isinstance(getattr(stack, "layer", None), nn.ModuleList)
        if has_layers and hasattr(encoder, "embeddings"):
            return stack
    raise ConfigurationError(
        f"{type(encoder).__name__} has no embeddings and stack of layers that Patamar knows; BERT, "
        "RoBERTa, XLM-R, ELECTRA, DistilBERT, MPNet and models built like them work"
    )


@contextmanager
def _bar_on_terminals_only() -> Iterator[None]:
    hide = not sys.stderr.isatty() and transformers_logging.is_progress_bar_enabled()
    if hide:
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if hide:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _probed(encoder: PreTrainedModel) -> Backbone:
    """A backbone that is known to compute what the encoder computes."""
    name = type(encoder).__name__
    training = encoder.training
    encoder.train(False)
    try:
        backbone = Backbone(encoder)
        forward, padding = _differences(encoder, backbone)
    except (
        TypeError,
        ValueError,
        RuntimeError,
        AssertionError,
        AttributeError,
        IndexError,
    ) as error:
        # A foreign architecture fails in ways that nobody can list; all mean that it does not fit.
        raise ConfigurationError(
            f"{name} cannot be run as embeddings and layers ({error}); use BERT, RoBERTa, XLM-R, "
            "ELECTRA, DistilBERT, MPNet or a model built like them"
        ) from error
    finally:
        encoder.train(training)
    # Written so that NaN fails.
    if not forward <= _PROBE_TOLERANCE:
        raise ConfigurationError(
            f"{name} does more than embeddings and layers (hidden states differ by {forward:.2g} "
            "of the largest); Patamar cannot run it layer by layer"
        )
    if not padding <= _PADDING_TOLERANCE:
        raise ConfigurationError(
            f"{name} lets padding change a text (by {padding:.2g} of the largest hidden state); "
            "its answers would depend on their neighbours"
        )
    return backbone


@torch.no_grad()
def _differences(encoder: PreTrainedModel, backbone: Backbone) -> tuple[float, float]:
    """From the encoder's own forward, and from the same text without padding; at real tokens."""
    pad = encoder.config.pad_token_id or 0
    vocabulary = int(encoder.config.vocab_size)
    generator = torch.Generator().manual_seed(0)
    low = min(pad + 1, vocabulary - 1)
    input_ids = torch.randint(low, vocabulary, (3, 9), generator=generator)
    attention_mask = torch.ones_like(input_ids)
    # Really padded rows: positions and masks go wrong there first.
    for row, length in ((1, 5), (2, 1)):
        input_ids[row, length:] = pad
        attention_mask[row, length:] = 0
    given = {"input_ids": input_ids, "attention_mask": attention_mask}
    token_type_ids = None
    if backbone.takes_token_types:
        token_type_ids = (
            torch.arange(9).ge(3).long().expand(3, -1) % backbone.config.type_vocab_size
        )
        given["token_type_ids"] = token_type_ids
    expected = encoder(**given).last_hidden_state
    hidden = _run(backbone, input_ids, attention_mask, token_type_ids)
    used = attention_mask.bool()
    alone = _run(
        backbone,
        input_ids[1:2, :5],
        attention_mask[1:2, :5],
        None if token_type_ids is None else token_type_ids[1:2, :5],
    )
    largest = expected[used].abs().max()
    forward = (hidden - expected)[used].abs().max() / largest
    padding = (hidden[1:2, :5] - alone).abs().max() / largest
    return float(forward), float(padding)


def _run(
    backbone: Backbone, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None
) -> Tensor:
    hidden = backbone.embed(input_ids, token_type_ids)
    context = backbone.context(hidden, attention_mask)
    for index in range(len(backbone.layers)):
        hidden = backbone.run_layer(index, hidden, context)
    return hidden
