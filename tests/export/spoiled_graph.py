"""An int8 graph that computes nonsense, to see that it is found out."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import numpy_helper

from export.qdq import Ranges, write_int8


def write_spoiled_int8(source: Path, ranges: Ranges, target: Path) -> None:
    """As `write_int8`, but every weight has the wrong sign and five times its size."""
    write_int8(source, ranges, target)
    model = onnx.load(target)
    restoring = [node for node in model.graph.node if node.op_type == "DequantizeLinear"]
    steps = {node.input[1] for node in restoring if node.output[0].endswith("_restored")}
    assert steps
    for tensor in model.graph.initializer:
        if tensor.name in steps:
            wrong = -5 * numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(wrong, tensor.name))
    onnx.save(model, target)
