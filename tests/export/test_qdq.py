"""Ranges, int8 weights, and graphs of them: exact integers, fused by onnxruntime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.qdq import (
    LARGEST_WEIGHT,
    ActivationRange,
    activation_ranges,
    best_range,
    int8_columns,
    squared_error,
    write_int8,
)
from multi_exit.bundle import Bundle
from multi_exit.errors import VerificationError
from multi_exit.runner import open_session, share_one_thread_pool
from multi_exit.text_encoder import EncodedText, TextInput

FLOATS = st.floats(-50, 50, width=32)
VALUES = arrays.arrays(np.float32, st.integers(1, 40), elements=FLOATS)
WEIGHTS = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 6), st.integers(2, 6)), elements=FLOATS
)


def _slow_error(values: NDArray[np.float32], covered: ActivationRange) -> float:
    scale, zero = float(covered.scale), int(covered.zero_point)
    total = 0.0
    for value in values.tolist():
        step = min(255, max(0, round(value / scale) + zero))
        total += ((step - zero) * scale - value) ** 2
    return total / len(values)


@given(VALUES)
def test_the_best_range_holds_zero_and_is_no_worse_than_smallest_to_largest(
    values: NDArray[np.float32],
) -> None:
    found = best_range(values)
    widest = ActivationRange(min(0.0, float(values.min())), max(0.0, float(values.max())))
    assert widest.low <= found.low <= 0.0 <= found.high <= widest.high
    assert squared_error(values, found) <= squared_error(values, widest)
    assert found.scale > 0


@given(VALUES)
def test_the_error_of_a_range_is_what_a_loop_over_values_finds(
    values: NDArray[np.float32],
) -> None:
    covered = ActivationRange(-3.0, 17.0)
    # Values at the border of two steps may round either way: the error is the same.
    assert squared_error(values, covered) == pytest.approx(
        _slow_error(values, covered), rel=1e-3, abs=1e-6
    )


@pytest.mark.parametrize("far", [[], [8.0], [40.0], [-30.0, 40.0]])
def test_the_best_range_is_as_good_as_a_search_of_both_ends(far: list[float]) -> None:
    values = np.append(np.random.default_rng(0).normal(size=5_000), far).astype(np.float32)
    fractions = np.linspace(0.02, 1.0, 50)
    least = min(
        squared_error(values, ActivationRange(low, high))
        for low in fractions * values.min()
        for high in fractions * values.max()
    )
    assert squared_error(values, best_range(values)) <= 1.05 * least


def test_a_few_far_values_among_many_are_clipped() -> None:
    # Laplace: a value twice as far is e times as rare for each unit; steps are better spent near 0.
    values = np.random.default_rng(0).laplace(size=100_000).astype(np.float32)
    found = best_range(values)
    assert found.high < 0.95 * values.max()
    widest = ActivationRange(float(values.min()), float(values.max()))
    assert squared_error(values, found) < 0.9 * squared_error(values, widest)


@given(WEIGHTS)
def test_int8_columns_restore_each_weight_to_half_a_step(weight: NDArray[np.float32]) -> None:
    steps, scale = int8_columns(weight)
    assert steps.dtype == np.int8
    assert np.abs(steps.astype(int)).max() <= LARGEST_WEIGHT
    # A scale this small has no half: float32 ends there.
    allowed = scale * 0.5001 + np.finfo(np.float32).tiny
    assert (np.abs(steps * scale - weight) <= allowed).all()
    assert (scale > 0).all()


def _product_graph(path: Path, weight: NDArray[np.float32]) -> Path:
    rows, columns = weight.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["hidden", "weight"], ["product"], "product")],
        "product",
        [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["batch", "length", rows])],
        [helper.make_tensor_value_info("product", TensorProto.FLOAT, ["batch", "length", columns])],
        [numpy_helper.from_array(weight, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("length", [1, 2, 7])
def test_products_of_the_largest_steps_are_exact_integers(tmp_path: Path, length: int) -> None:
    # With eight-bit weights AVX2 saturates here, and 127 times 255 comes out too small.
    weight = np.where(np.arange(64 * 32).reshape(64, 32) % 3 == 0, -1.0, 1.0).astype(np.float32)
    weight *= LARGEST_WEIGHT
    source = _product_graph(tmp_path / "fp32.onnx", weight)
    write_int8(source, {"hidden": ActivationRange(0.0, 255.0)}, tmp_path / "int8.onnx")
    share_one_thread_pool(1)
    hidden = np.full((3, length, 64), 255.0, dtype=np.float32)
    (product,) = open_session(tmp_path / "int8.onnx", "cpu").run(None, {"hidden": hidden})
    expected = hidden.astype(np.int64) @ weight.astype(np.int64)
    np.testing.assert_array_equal(product, expected)


def _encoded(bundle: Bundle) -> list[EncodedText]:
    texts = ("rain and wind", "the guitar", "bread soup cheese today " * 9, "very near mist with")
    return [bundle.text_encoder().encode(TextInput(text)) for text in texts]


def test_ranges_lie_within_what_torch_sees_before_each_layers_products(
    toy_bundle: Bundle, toy_checkpoint: Path
) -> None:
    from training.checkpoint import load_checkpoint

    model = load_checkpoint(toy_checkpoint).model
    seen: dict[int, list[tuple[float, float]]] = {}

    def watch(layer: int) -> None:
        def hook(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...], __: object) -> None:
            found = (float(inputs[0].min()), float(inputs[0].max()))
            seen.setdefault(layer, []).append(found)

        for module in model.backbone.layers[layer].modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(hook)

    layers = len(model.backbone.layers)
    for layer in range(layers):
        watch(layer)
    encoded = _encoded(toy_bundle)
    for text in encoded:
        ids = torch.from_numpy(text.token_ids[None])
        types = torch.from_numpy(text.type_ids[None])
        with torch.inference_mode():
            model(ids, torch.ones_like(ids), types)
    ranges = activation_ranges(toy_bundle, encoded)
    assert len(ranges) == layers
    for layer, found in enumerate(ranges):
        # Query, key and value read one tensor: 6 products, 4 tensors.
        assert len(found) == 4
        assert len(seen[layer]) == 6 * len(encoded)
        lowest = min(low for low, _ in seen[layer])
        highest = max(high for _, high in seen[layer])
        assert min(covered.low for covered in found.values()) >= lowest - 1e-4
        assert max(covered.high for covered in found.values()) <= highest + 1e-4
        # Ends are shrunk to a fifth at most.
        assert max(covered.high for covered in found.values()) >= 0.19 * highest


def test_onnxruntime_runs_every_product_of_a_layer_in_integers(
    toy_bundle: Bundle, tmp_path: Path
) -> None:
    share_one_thread_pool(1)
    ranges = activation_ranges(toy_bundle, _encoded(toy_bundle))
    for stage, covered in zip(toy_bundle.manifest.stages, ranges, strict=True):
        write_int8(toy_bundle.path / stage.file, covered, tmp_path / stage.file)
        options = ort.SessionOptions()
        options.use_per_session_threads = False
        options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
        options.log_severity_level = 3
        ort.InferenceSession(
            str(tmp_path / stage.file), options, providers=["CPUExecutionProvider"]
        )
        graph = onnx.load(tmp_path / "loaded.onnx").graph
        counts = Counter(node.op_type for node in graph.node)
        assert counts["MatMulIntegerToFloat"] == 6
        assert counts["QuantizeLinear"] == 4
        constant = {tensor.name for tensor in graph.initializer}
        products = [node for node in graph.node if node.op_type == "MatMul"]
        assert not any(node.input[1] in constant for node in products)


def test_a_graph_without_a_product_of_weights_is_refused(
    toy_bundle: Bundle, tmp_path: Path
) -> None:
    encoded = _encoded(toy_bundle)
    ranges = activation_ranges(toy_bundle, encoded)
    manifest = toy_bundle.manifest
    for stage, covered in zip(manifest.stages, ranges, strict=True):
        write_int8(toy_bundle.path / stage.file, covered, tmp_path / stage.file)
    with pytest.raises(VerificationError, match="no product"):
        activation_ranges(Bundle(tmp_path, manifest, "already int8"), encoded)
