"""Rewrites a stage graph so that its layers multiply int8: static QDQ pairs (decision 040).

Only products of hidden states with weights change. Embeddings, the inside of attention, layer
normalisation, GELU and the exit stay fp32.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from multi_exit.batch import TokenBatch, bucket_of, pad_batch
from multi_exit.bundle import Bundle, BundleManifest
from multi_exit.errors import VerificationError
from multi_exit.runner import open_session, share_one_thread_pool
from multi_exit.text_encoder import EncodedText

# Seven bits, not eight: AVX2 adds two products of uint8 and int8 in 16 bits, and 2 * 255 * 127
# does not fit; 2 * 255 * 64 does. Every CPU then gives the same integers.
LARGEST_WEIGHT = 64
_STEPS = 255
_SEARCHED_VALUES = 2**17
_SHRINKS = np.linspace(0.2, 1.0, 17)


@dataclass(frozen=True, slots=True)
class ActivationRange:
    """Values that uint8 covers; what lies outside is clipped. low <= 0 <= high."""

    low: float
    high: float

    @property
    def scale(self) -> np.float32:
        """Width of one step; 1 for a tensor that is always zero."""
        return np.float32((self.high - self.low) / _STEPS or 1.0)

    @property
    def zero_point(self) -> np.uint8:
        """The step that stands for zero."""
        return np.uint8(np.clip(np.rint(-self.low / self.scale), 0, _STEPS))


Ranges = Mapping[str, ActivationRange]
_Feeds = dict[str, NDArray[Any]]


def best_range(values: NDArray[np.float32]) -> ActivationRange:
    """The range whose 256 steps reproduce `values` (any shape) with least mean square error.

    Ends are shrunk in turn from the smallest and the largest value; a few far values then do not
    coarsen all others. Source: Nagel et al., "A white paper on neural network quantization", 2021.
    """
    flat = values.ravel()
    if len(flat) > _SEARCHED_VALUES:
        # Drawn, not every n-th: n may divide the number of channels, and most were never seen.
        flat = flat[np.random.default_rng(0).integers(len(flat), size=_SEARCHED_VALUES)]
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    best = ActivationRange(low, high)
    least = squared_error(flat, best)
    # Twice: the best low end depends on the high one.
    for _ in range(2):
        for shrink in _SHRINKS:
            for tried in (
                ActivationRange(low * shrink, best.high),
                ActivationRange(best.low, high * shrink),
            ):
                error = squared_error(flat, tried)
                if error < least:
                    best, least = tried, error
    return best


def squared_error(values: NDArray[np.float32], covered: ActivationRange) -> float:
    """Mean square difference between values and what uint8 makes of them."""
    zero_point = float(covered.zero_point)
    steps = np.clip(np.rint(values / covered.scale) + zero_point, 0, _STEPS)
    restored = (steps - zero_point) * covered.scale
    return float(np.mean((restored - values) ** 2))


def int8_columns(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Each column in whole steps of its own: int8 [rows, columns] and the steps, [columns].

    Symmetric: zero is zero. A column of zeros has step 1.
    """
    largest = np.abs(weight).max(axis=0)
    scale = np.where(largest > 0, largest / LARGEST_WEIGHT, 1.0).astype(np.float32)
    return np.rint(weight / scale).astype(np.int8), scale


def activation_ranges(bundle: Bundle, encoded: Sequence[EncodedText]) -> tuple[Ranges, ...]:
    """What each stage's products read on these texts, stage by stage, through fp32 stages.

    Each text runs alone, in its bucket; padding is not looked at. All values of one stage are in
    memory at once: choose texts of a few thousand tokens. Raises VerificationError for a stage
    without a product that could be int8.
    """
    share_one_thread_pool(0)
    manifest = bundle.manifest
    batches = [_alone(text, manifest) for text in encoded]
    inputs = [_token_feeds(tokens, manifest.model_inputs) for tokens in batches]
    ranges = []
    for stage in manifest.stages:
        values, hidden = _observe(bundle.path / stage.file, inputs, batches)
        ranges.append({name: best_range(seen) for name, seen in values.items()})
        inputs = [
            _hidden_feeds(tokens, state) for tokens, state in zip(batches, hidden, strict=False)
        ]
    return tuple(ranges)


def write_int8(source: Path, ranges: Ranges, target: Path) -> None:
    """Writes the graph of `source` with its products in int8, activations clipped to `ranges`.

    onnxruntime fuses each pair with its product to one MatMulIntegerToFloat while loading.
    """
    model = onnx.load(source)
    graph = model.graph
    products = _products(graph)
    weights = _quantise_weights(graph, {node.input[1] for node in products})
    product_outputs = {node.output[0] for node in products}
    nodes: list[NodeProto] = list(weights)
    paired: set[str] = set()
    for node in graph.node:
        if node.output[0] in product_outputs:
            activation, weight = node.input
            if activation not in paired:
                nodes += _pair(graph, activation, ranges[activation])
                paired.add(activation)
            node.input[0], node.input[1] = f"{activation}_covered", f"{weight}_restored"
        nodes.append(node)
    # Copied first: the graph's own list is emptied.
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    _drop_unused(graph)
    onnx.save(model, target)


def _products(graph: GraphProto) -> list[NodeProto]:
    """Products of hidden states with a constant matrix; the exit's are Gemm, or one column."""
    weights = {
        tensor.name
        for tensor in graph.initializer
        if tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 2 and tensor.dims[1] > 1
    }
    return [node for node in graph.node if node.op_type == "MatMul" and node.input[1] in weights]


def _alone(text: EncodedText, manifest: BundleManifest) -> TokenBatch:
    return pad_batch([text], bucket_of(len(text), manifest.length_buckets), manifest.pad_token_id)


def _token_feeds(tokens: TokenBatch, names: Sequence[str]) -> _Feeds:
    return {name: getattr(tokens, name) for name in names}


def _hidden_feeds(tokens: TokenBatch, hidden: NDArray[np.float32]) -> _Feeds:
    return {"hidden": hidden, "attention_mask": tokens.attention_mask, "keep": np.arange(1)}


def _observe(
    path: Path, inputs: Sequence[_Feeds], batches: Sequence[TokenBatch]
) -> tuple[dict[str, NDArray[np.float32]], list[NDArray[np.float32]]]:
    """What products read, [tokens, channels] by tensor, and each text's hidden states."""
    model = onnx.load(path)
    names = list(dict.fromkeys(node.input[0] for node in _products(model.graph)))
    if not names:
        raise VerificationError(f"{path.name} has no product with a weight that could be int8")
    outputs = [value.name for value in model.graph.output]
    model.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        for name in names
        if name not in outputs
    )
    with tempfile.TemporaryDirectory() as scratch:
        onnx.save(model, Path(scratch) / path.name)
        session = open_session(Path(scratch) / path.name, "cpu")
    wanted = [*names, *(name for name in outputs if name == "hidden_out")]
    seen: dict[str, list[NDArray[np.float32]]] = {name: [] for name in names}
    hidden = []
    for feeds, tokens in zip(inputs, batches, strict=True):
        found = dict(zip(wanted, session.run(wanted, feeds), strict=True))
        for name in names:
            seen[name].append(found[name][tokens.attention_mask.astype(bool)])
        if "hidden_out" in found:
            hidden.append(found["hidden_out"])
    return {name: np.concatenate(parts) for name, parts in seen.items()}, hidden


def _quantise_weights(graph: GraphProto, names: set[str]) -> list[NodeProto]:
    """Adds int8 weights and their steps; returns the nodes that restore them."""
    nodes = []
    for tensor in [tensor for tensor in graph.initializer if tensor.name in names]:
        steps, scale = int8_columns(numpy_helper.to_array(tensor))
        parts = [f"{tensor.name}_int8", f"{tensor.name}_step"]
        graph.initializer.append(numpy_helper.from_array(steps, parts[0]))
        graph.initializer.append(numpy_helper.from_array(scale, parts[1]))
        restored = f"{tensor.name}_restored"
        nodes.append(helper.make_node("DequantizeLinear", parts, [restored], restored, axis=1))
    return nodes


def _pair(graph: GraphProto, activation: str, covered: ActivationRange) -> list[NodeProto]:
    """Adds a range's step and zero point; returns the nodes that quantise and restore."""
    parts = [f"{activation}_step", f"{activation}_zero"]
    graph.initializer.extend(
        numpy_helper.from_array(np.array(value), name)
        for name, value in ((parts[0], covered.scale), (parts[1], covered.zero_point))
    )
    steps, restored = f"{activation}_uint8", f"{activation}_covered"
    return [
        helper.make_node("QuantizeLinear", [activation, *parts], [steps], steps),
        helper.make_node("DequantizeLinear", [steps, *parts], [restored], restored),
    ]


def _drop_unused(graph: GraphProto) -> None:
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    copies = [TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
    del graph.initializer[:]
    graph.initializer.extend(copies)
