"""The static model behind our own server: one graph, one exit after the last layer, one stage.

What ONNX Runtime, our batching and our HTTP give without early exit, and without what staging and
unused exits cost.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import onnx
from onnx import GraphProto, NodeProto, TensorProto, helper

from bench.engine.single_graph import join_stages
from multi_exit.bundle import MANIFEST_FILE, Bundle, GoldenExample, StageEntry, load_bundle

_GRAPH = "stage_01.onnx"


def write_static_bundle(bundle: Bundle, target: Path) -> Bundle:
    """Writes a bundle that answers as `bundle` does at full depth. Needs at least two stages."""
    manifest = bundle.manifest
    target.mkdir()
    for name in (manifest.tokenizer_file, manifest.merge_file):
        shutil.copyfile(bundle.path / name, target / name)
    join_stages(bundle, target / _GRAPH)
    model = onnx.load(target / _GRAPH)
    _only_last_exit(model.graph, len(manifest.stages))
    onnx.save(model, target / _GRAPH)
    files = (manifest.tokenizer_file, manifest.merge_file, _GRAPH)
    static = manifest.model_copy(
        update={
            "name": f"{manifest.name}-static",
            "exits": (manifest.layers,),
            "stages": (StageEntry(file=_GRAPH, first_layer=1, exit_layer=manifest.layers),),
            "operating_points": (),
            "default_point": None,
            "golden": tuple(_last_exit_of(example) for example in manifest.golden),
            "files": {name: _digest(target / name) for name in files},
        }
    )
    (target / MANIFEST_FILE).write_text(static.model_dump_json(), encoding="utf-8")
    return load_bundle(target)


def _last_exit_of(example: GoldenExample) -> GoldenExample:
    return example.model_copy(
        update={
            "labels": example.labels[-1:],
            "entropies": example.entropies[-1:],
            "logits": example.logits[-1:],
        }
    )


def _only_last_exit(graph: GraphProto, stages: int) -> None:
    """Drops the other exits and the input `keep`: every row stays to the end."""
    names = {f"logits_{stages:02d}": "logits", f"entropy_{stages:02d}": "entropy"}
    outputs = [output for output in graph.output if output.name in names]
    inputs = [value for value in graph.input if value.name != "keep"]
    nodes = [*_every_row(graph), *graph.node]
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for output in outputs:
        output.name = names[output.name]
    nodes = _needed(nodes, {output.name for output in outputs})
    used = {name for node in nodes for name in node.input}
    weights = [tensor for tensor in graph.initializer if tensor.name in used]
    for field, values in (
        (graph.node, nodes),
        (graph.input, inputs),
        (graph.output, outputs),
        (graph.initializer, weights),
    ):
        copies = [type(value).FromString(value.SerializeToString()) for value in values]
        del field[:]
        field.extend(copies)


def _every_row(graph: GraphProto) -> list[NodeProto]:
    """Nodes that make `keep` of the number of rows."""
    for name, value in (("static_zero", 0), ("static_one", 1)):
        graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [], [value]))
    graph.initializer.append(helper.make_tensor("static_axis", TensorProto.INT64, [1], [0]))
    return [
        helper.make_node("Shape", ["attention_mask"], ["static_rows"], start=0, end=1),
        helper.make_node("Squeeze", ["static_rows", "static_axis"], ["static_count"]),
        helper.make_node("Range", ["static_zero", "static_count", "static_one"], ["keep"]),
    ]


def _needed(nodes: list[NodeProto], wanted: set[str]) -> list[NodeProto]:
    """The nodes, in their order, on which the wanted values depend."""
    kept: list[NodeProto] = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted = wanted | set(node.input)
            kept.append(node)
    return kept[::-1]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
