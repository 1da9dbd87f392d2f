"""One graph made of all stages of a bundle: what staging is compared with.

Same layers, same exits, same outputs; only the borders between stages are gone: hidden states
flow inside the graph, and no row is dropped.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, helper

from multi_exit.bundle import Bundle

# keep stays an input for the sizes that are read off it; its rows are not gathered.
_SHARED = frozenset({"attention_mask", "keep"})


def join_stages(bundle: Bundle, target: Path) -> None:
    """Writes the joined graph to `target`. Outputs: logits_NN and entropy_NN of every exit.

    Needs at least two stages; `keep` is fed with every row.
    """
    models = [onnx.load(bundle.path / stage.file) for stage in bundle.manifest.stages]
    nodes, initializers, outputs = [], [], []
    hidden = ""
    for number, model in enumerate(models, start=1):
        graph = model.graph
        if number > 1:
            _without_keep(graph)
        names = _new_names(graph, number, hidden)
        for node in graph.node:
            nodes.append(_renamed(node, names))
        for tensor in graph.initializer:
            tensor.name = names[tensor.name]
            initializers.append(tensor)
        for output in graph.output:
            if output.name == "hidden_out":
                hidden = names["hidden_out"]
            else:
                output.name = names[output.name]
                outputs.append(output)
    inputs = list(models[0].graph.input)
    inputs += [value for value in models[1].graph.input if value.name == "keep"]
    joined = helper.make_graph(nodes, "joined", inputs, outputs, initializer=initializers)
    onnx.save(_model_like(models[0], joined), target)


def _model_like(model: ModelProto, graph: GraphProto) -> ModelProto:
    return helper.make_model(
        graph, opset_imports=list(model.opset_import), ir_version=model.ir_version
    )


def _without_keep(graph: GraphProto) -> None:
    gather = next(node for node in graph.node if node.input[0] == "hidden")
    for node in graph.node:
        node.input[:] = ["hidden" if name == gather.output[0] else name for name in node.input]
    graph.node.remove(gather)


def _new_names(graph: GraphProto, stage: int, hidden: str) -> dict[str, str]:
    """Prefixes every name of a stage, but shares the mask and takes the state from before."""
    used = {name for node in graph.node for name in (*node.input, *node.output)}
    used |= {tensor.name for tensor in graph.initializer}
    names = {name: f"stage{stage:02d}_{name}" for name in used if name}
    names |= {"": ""} | {name: name for name in _SHARED}
    names |= {"logits": f"logits_{stage:02d}", "entropy": f"entropy_{stage:02d}"}
    if stage == 1:
        names |= {value.name: value.name for value in graph.input}
    else:
        names["hidden"] = hidden
    return names


def _renamed(node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    node.input[:] = [names[name] for name in node.input]
    node.output[:] = [names[name] for name in node.output]
    node.name = ""
    return node
