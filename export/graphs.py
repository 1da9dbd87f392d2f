"""Writes one ONNX graph per exit, with the entropy inside, and the graph that merges groups.

Stage 1:      input_ids, attention_mask (, token_type_ids) -> logits, entropy, hidden_out
Stage 2 on:   hidden [rows before], attention_mask [rows that stay], keep -> the same
Last stage:   no hidden_out
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from onnx import ModelProto, TensorProto, helper
from torch import Tensor, nn

from multi_exit.errors import VerificationError
from training.model import MultiExitModel

OPSET = 18
# Larger than one: size-one axes are taken for constants while tracing.
_EXAMPLE_ROWS, _EXAMPLE_KEPT, _EXAMPLE_LENGTH = 5, 3, 7


@dataclass(frozen=True, slots=True)
class StageSpan:
    """Layers of one stage, counted from 1, and the index of the exit after them."""

    first_layer: int
    exit_layer: int
    exit_index: int


def stage_spans(exits: Sequence[int]) -> list[StageSpan]:
    """The stages that lie between exits, which ascend."""
    firsts = (1, *(layer + 1 for layer in exits[:-1]))
    return [
        StageSpan(first, last, index)
        for index, (first, last) in enumerate(zip(firsts, exits, strict=True))
    ]


class _Stage(nn.Module):
    """Layers and exit of one span, as a module of its own to trace."""

    def __init__(self, model: MultiExitModel, span: StageSpan, *, last: bool) -> None:
        super().__init__()
        self.model = model
        self.span = span
        self.last = last

    def finish(self, hidden: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        context = self.model.context(hidden, attention_mask)
        span = self.span
        hidden = self.model.run_layers(span.first_layer, span.exit_layer, hidden, context)
        _, logits = self.model.exit_head(span.exit_index, hidden, attention_mask)
        entropy = _normalised_entropy(logits)
        return (logits, entropy) if self.last else (logits, entropy, hidden)


class _FirstStage(_Stage):
    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        hidden = self.model.embed(input_ids, attention_mask, token_type_ids)
        return self.finish(hidden, attention_mask)


class _LaterStage(_Stage):
    def forward(self, hidden: Tensor, attention_mask: Tensor, keep: Tensor) -> tuple[Tensor, ...]:
        # Not index_select: the first residual is then fused no more, its shape being unknown.
        return self.finish(hidden[keep], attention_mask)


def _normalised_entropy(logits: Tensor) -> Tensor:
    """As `multi_exit.confidence.normalised_entropy`, in float32: [batch, K] -> [batch]."""
    log_p = torch.log_softmax(logits.float(), dim=-1)
    # A product of matrices, not a sum over an axis: onnxruntime adds up a batch of one in another
    # order than a larger batch, and a text could leave elsewhere for its neighbours (decision 004).
    summed = torch.bmm(log_p.exp().unsqueeze(1), log_p.unsqueeze(2)).reshape(-1)
    return (-summed / math.log(logits.shape[-1])).clamp(min=0.0, max=1.0)


def write_stage(model: MultiExitModel, span: StageSpan, *, last: bool, path: Path) -> None:
    """Traces one stage and writes its graph. Raises VerificationError for a fixed axis."""
    batch, length = torch.export.Dim.DYNAMIC, torch.export.Dim.DYNAMIC
    token_axes = {0: batch, 1: length}
    if span.exit_index == 0:
        names: list[str] = list(model.input_names)
        shape = (_EXAMPLE_KEPT, _EXAMPLE_LENGTH)
        examples = tuple(torch.ones(shape, dtype=torch.int64) for _ in names)
        axes: tuple[dict[int, object], ...] = (token_axes,) * len(names)
        module: nn.Module = _FirstStage(model, span, last=last)
    else:
        names = ["hidden", "attention_mask", "keep"]
        examples = (
            torch.randn(_EXAMPLE_ROWS, _EXAMPLE_LENGTH, model.hidden_size),
            torch.ones(_EXAMPLE_KEPT, _EXAMPLE_LENGTH, dtype=torch.int64),
            torch.arange(_EXAMPLE_KEPT),
        )
        axes = (token_axes, token_axes, {0: batch})
        module = _LaterStage(model, span, last=last)
    outputs = ["logits", "entropy"] + ([] if last else ["hidden_out"])
    _export(module.eval(), examples, names=names, outputs=outputs, axes=axes, path=path)
    _check_axes(path)


def write_merge(hidden_size: int, path: Path) -> None:
    """Writes the graph that joins the hidden states of two groups of equal length."""
    graph = helper.make_graph(
        [helper.make_node("Concat", ["first", "second"], ["merged"], axis=0)],
        "merge",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, "length", hidden_size])
            for name, rows in (("first", "first_rows"), ("second", "second_rows"))
        ],
        [
            helper.make_tensor_value_info(
                "merged", TensorProto.FLOAT, ["rows", "length", hidden_size]
            )
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.save(model, path)


def _export(
    module: nn.Module,
    examples: tuple[Tensor, ...],
    *,
    names: list[str],
    outputs: list[str],
    axes: tuple[dict[int, object], ...],
    path: Path,
) -> None:
    # The exporter tells of operators of packages that are not in use; nothing to act on.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            examples,
            None,
            input_names=names,
            output_names=outputs,
            dynamic_shapes=axes,
            dynamo=True,
            opset_version=OPSET,
            verbose=False,
        )
    assert program is not None, "with no path given the exporter returns the program"
    program.save(str(path))


def _check_axes(path: Path) -> None:
    graph = onnx.load(path, load_external_data=False).graph
    for value in graph.input:
        axes = value.type.tensor_type.shape.dim
        # Axis 0 is rows; axis 1, where there is one, is tokens.
        fixed = [axis for axis in range(min(2, len(axes))) if not axes[axis].dim_param]
        if fixed:
            raise VerificationError(
                f"{path.name}: axes {fixed} of {value.name} were fixed while tracing (a bug)"
            )


def fuse(path: Path, *, heads: int, hidden_size: int) -> None:
    """Rewrites a graph with fused layer normalisation, GELU and residuals, in place.

    onnxruntime fuses some of them itself while loading, but fewer.
    """
    from onnxruntime.transformers import optimizer

    logging.getLogger("onnxruntime.transformers").setLevel(logging.ERROR)
    fused = optimizer.optimize_model(
        str(path), model_type="bert", num_heads=heads, hidden_size=hidden_size, opt_level=0
    )
    model: ModelProto = fused.model
    onnx.save(model, path)
