"""The check of batch invariance passes graphs that keep the promise, and finds one that cannot."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest
from onnx import NodeProto, helper

from export.invariance import check_batch_invariance
from export.qdq import activation_ranges, write_int8
from export.sensitivity import int8_file, mixed
from multi_exit.bundle import Bundle
from multi_exit.errors import VerificationError
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import EncodedText, TextInput


@pytest.fixture
def encoded(toy_bundle: Bundle) -> list[EncodedText]:
    texts = ("rain and wind near the sky", "the guitar", "some bread, soup and cheese")
    return [toy_bundle.text_encoder().encode(TextInput(text)) for text in texts]


@pytest.fixture
def draft(toy_bundle: Bundle, encoded: list[EncodedText], tmp_path: Path) -> Bundle:
    """A copy of the toy bundle with an int8 graph beside every fp32 one."""
    folder = tmp_path / "draft"
    shutil.copytree(toy_bundle.path, folder)
    for stage, covered in zip(
        toy_bundle.manifest.stages, activation_ranges(toy_bundle, encoded), strict=True
    ):
        write_int8(folder / stage.file, covered, folder / int8_file(stage.file))
    return Bundle(folder, toy_bundle.manifest, toy_bundle.identifier)


@pytest.mark.parametrize("int8_stages", [(), (1, 2, 3), (2,)])
def test_fp32_and_static_int8_give_a_row_the_same_bits_in_any_batch(
    draft: Bundle, encoded: list[EncodedText], int8_stages: tuple[int, ...]
) -> None:
    runner = StageRunner(mixed(draft, int8_stages), provider="cpu", threads=2)
    # Four lengths, of which two are 64 or more; no row leaves before stage 2.
    assert check_batch_invariance(runner, draft.manifest, encoded) > 4 * (2 + 3 + 5 + 8 + 17 + 32)


def test_dynamic_quantisation_is_found_out(draft: Bundle, encoded: list[EncodedText]) -> None:
    path = draft.path / int8_file(draft.manifest.stages[1].file)
    model = onnx.load(path)
    _make_dynamic(model)
    onnx.save(model, path)
    runner = StageRunner(mixed(draft, {2}), provider="cpu", threads=1)
    with pytest.raises(VerificationError, match=r"stage 2.* depend on its neighbours"):
        check_batch_invariance(runner, draft.manifest, encoded)


def _make_dynamic(model: onnx.ModelProto) -> None:
    """Takes the step of every activation from the batch at hand."""
    nodes = []
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            steps = node.output[0]
            parts = [steps, f"{steps}_step", f"{steps}_zero"]
            nodes.append(helper.make_node("DynamicQuantizeLinear", [node.input[0]], parts, steps))
        elif node.op_type == "DequantizeLinear" and node.input[0].endswith("_uint8"):
            node.input[1], node.input[2] = f"{node.input[0]}_step", f"{node.input[0]}_zero"
            nodes.append(NodeProto.FromString(node.SerializeToString()))
        else:
            nodes.append(NodeProto.FromString(node.SerializeToString()))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
