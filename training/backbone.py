"""A pretrained encoder taken apart into embeddings and layers: where families differ.

The same path trains and is exported: own additive mask, one layer at a time. A probe compares it
with the model's own forward, so that an architecture that it does not fit is refused.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel

from multi_exit.errors import ConfigurationError

# Large enough to silence a token, small enough not to overflow half precision when added up.
_MASKED = -1e4
_PROBE_TOLERANCE = 1e-4


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
        self.embeddings: Any = encoder.embeddings
        # ELECTRA's small models embed in fewer dimensions than their layers have.
        self.projection: Any = getattr(encoder, "embeddings_project", nn.Identity())
        stack = _layer_stack(encoder)
        self.layers: nn.ModuleList = stack.layer
        # MPNet: one table of relative positions for all layers.
        self.relative_attention_bias: nn.Embedding | None = getattr(
            stack, "relative_attention_bias", None
        )
        self._bucket = getattr(stack, "relative_position_bucket", None)
        self.takes_token_types = (
            "token_type_ids" in inspect.signature(encoder.embeddings.forward).parameters
            and getattr(self.config, "type_vocab_size", 0) > 0
        )

    @property
    def hidden_size(self) -> int:
        return int(self.config.hidden_size)

    @property
    def attention_heads(self) -> int:
        return int(self.config.num_attention_heads)

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
    backbone = Backbone(encoder)
    _probe(encoder, backbone)
    kept = list(backbone.layers)[: layers or len(backbone.layers)]
    if layers is not None and layers > len(backbone.layers):
        raise ConfigurationError(
            f"layers = {layers}, but the backbone has only {len(backbone.layers)}"
        )
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
        if stack is not None and isinstance(getattr(stack, "layer", None), nn.ModuleList):
            return stack
    raise ConfigurationError(
        f"{type(encoder).__name__} has no stack of layers that Patamar knows; BERT, RoBERTa, "
        "XLM-R, ELECTRA, DistilBERT, MPNet and models built like them work"
    )


@torch.no_grad()
def _probe(encoder: PreTrainedModel, backbone: Backbone) -> None:
    training = encoder.training
    encoder.train(False)
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
    expected = encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    hidden = backbone.embed(input_ids, None)
    context = backbone.context(hidden, attention_mask)
    for index in range(len(backbone.layers)):
        hidden = backbone.run_layer(index, hidden, context)
    encoder.train(training)
    used = attention_mask.bool()
    difference = float((hidden[used] - expected[used]).abs().max())
    # Written so that NaN fails.
    if not difference <= _PROBE_TOLERANCE:
        raise ConfigurationError(
            f"{type(encoder).__name__} does more than embeddings and layers (hidden states differ "
            f"by {difference:.2g}); Patamar cannot run it layer by layer"
        )
