"""The multi-exit classifier: a backbone, and after some layers a pooler and a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from multi_exit.bundle import TokenInput
from multi_exit.errors import ConfigurationError
from training.backbone import Backbone, LayerContext
from training.pooling import PoolingName, make_pooling


@dataclass(frozen=True, slots=True, eq=False)
class ExitBatch:
    """What every exit says about a batch.

    representations [exits, batch, hidden]: after the pooler's tanh, before dropout and classifier.
    label_embeddings [exits, K, hidden]: the classifiers' weight rows. logits [exits, batch, K],
    computed from these very two tensors, so that gradients at them can be asked for.
    """

    representations: Tensor
    label_embeddings: Tensor
    logits: Tensor


class ExitHead(nn.Module):
    """Pooling, dense and tanh: the representation. Holds the dropout and classifier after it."""

    def __init__(self, hidden_size: int, labels: int, pooling: PoolingName, dropout: float) -> None:
        super().__init__()
        self.pooling = make_pooling(pooling, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(hidden_size, labels)

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        return torch.tanh(self.dense(self.pooling(hidden, attention_mask)))


class MultiExitModel(nn.Module):
    """A backbone with exits after the layers `exits`, counted from 1; the last exit is the last.

    Raises ConfigurationError for exits that do not ascend to the last layer.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        exits: Sequence[int],
        labels: int,
        pooling: PoolingName,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        layers = len(backbone.layers)
        ascending = list(exits) == sorted(set(exits))
        if not exits or not ascending or exits[0] < 1 or exits[-1] != layers:
            raise ConfigurationError(
                f"exits must ascend and end with the last layer, {layers}; got {list(exits)}"
            )
        self.backbone = backbone
        self.exits = tuple(exits)
        self.heads = nn.ModuleList(
            ExitHead(backbone.hidden_size, labels, pooling, dropout) for _ in exits
        )

    @property
    def hidden_size(self) -> int:
        return self.backbone.hidden_size

    @property
    def attention_heads(self) -> int:
        return self.backbone.attention_heads

    @property
    def pad_token_id(self) -> int:
        return int(self.backbone.config.pad_token_id or 0)

    @property
    def input_names(self) -> tuple[TokenInput, ...]:
        """Names of the token tensors that the model reads."""
        if self.backbone.takes_token_types and self.backbone.config.type_vocab_size > 1:
            return ("input_ids", "attention_mask", "token_type_ids")
        return ("input_ids", "attention_mask")

    def untrained(self, exit_weights: Sequence[float], trains_backbone: bool) -> list[nn.Module]:
        """Parts that a step leaves as they are: exits of weight 0, perhaps the backbone.

        Without a gradient the optimiser neither moves nor decays them.
        """
        parts: list[nn.Module] = [
            head for head, weight in zip(self.heads, exit_weights, strict=True) if weight == 0
        ]
        return parts if trains_backbone else [*parts, self.backbone]

    def embed(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """int64 [batch, length] -> hidden states before the first layer."""
        return self.backbone.embed(input_ids, token_type_ids)

    def context(self, hidden: Tensor, attention_mask: Tensor) -> LayerContext:
        """What layers need beside hidden states; the same for all layers of a batch."""
        return self.backbone.context(hidden, attention_mask)

    def run_layers(
        self, first_layer: int, last_layer: int, hidden: Tensor, context: LayerContext
    ) -> Tensor:
        """Layers first_layer to last_layer, counted from 1, both included."""
        for layer in range(first_layer, last_layer + 1):
            hidden = self.backbone.run_layer(layer - 1, hidden, context)
        return hidden

    def exit_head(
        self, exit_index: int, hidden: Tensor, attention_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Representation [batch, hidden] and logits [batch, K] of one exit, counted from 0."""
        head = self._head(exit_index)
        representation = head(hidden, attention_mask)
        logits: Tensor = head.classifier(head.dropout(representation))
        return representation, logits

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> ExitBatch:
        hidden = self.embed(input_ids, attention_mask, token_type_ids)
        context = self.context(hidden, attention_mask)
        representations = []
        first_layer = 1
        for index, layer in enumerate(self.exits):
            hidden = self.run_layers(first_layer, layer, hidden, context)
            representations.append(self._head(index)(hidden, attention_mask))
            first_layer = layer + 1
        return self._classify(torch.stack(representations))

    def _classify(self, representations: Tensor) -> ExitBatch:
        heads = [self._head(index) for index in range(len(self.exits))]
        weights = torch.stack([head.classifier.weight for head in heads])
        biases = torch.stack([head.classifier.bias for head in heads])
        dropped = heads[0].dropout(representations)
        logits = torch.baddbmm(
            biases[:, None, :].to(dropped.dtype), dropped, weights.mT.to(dropped.dtype)
        )
        return ExitBatch(representations, weights, logits)

    def _head(self, exit_index: int) -> ExitHead:
        head = self.heads[exit_index]
        assert isinstance(head, ExitHead), "heads holds nothing else"
        return head
