"""The static bundle answers as the staged one does at full depth, and holds nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from bench.serving.static_bundle import write_static_bundle
from multi_exit.bundle import Bundle
from multi_exit.offline import check_golden, every_exit
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import TextInput


def test_the_static_bundle_answers_as_full_depth_does(toy_bundle: Bundle, tmp_path: Path) -> None:
    static = write_static_bundle(toy_bundle, tmp_path / "static")
    assert static.manifest.exits == (toy_bundle.manifest.layers,)
    encoder = toy_bundle.text_encoder()
    texts = [encoder.encode(TextInput(text)) for text in ("rain", "the song of soup", "a " * 40)]
    staged = every_exit(
        StageRunner(toy_bundle, provider="cpu", threads=1), toy_bundle.manifest, texts
    )
    runner = StageRunner(static, provider="cpu", threads=1)
    assert runner.stages == 1
    found = every_exit(runner, static.manifest, texts)
    np.testing.assert_allclose(found.logits[:, 0], staged.logits[:, -1], atol=1e-5)
    np.testing.assert_allclose(found.entropy[:, 0], staged.entropy[:, -1], atol=1e-5)
    check_golden(runner, static, encoder)


def test_the_other_exits_are_gone_from_the_graph(toy_bundle: Bundle, tmp_path: Path) -> None:
    static = write_static_bundle(toy_bundle, tmp_path / "static")
    graph = onnx.load(static.path / static.manifest.stages[0].file).graph
    assert {output.name for output in graph.output} == {"logits", "entropy"}
    assert {value.name for value in graph.input} == set(static.manifest.model_inputs)
    stages = [onnx.load(toy_bundle.path / s.file).graph for s in toy_bundle.manifest.stages]
    softmaxes = [
        sum(node.op_type == "LogSoftmax" for node in graph.node) for graph in (graph, *stages)
    ]
    assert softmaxes[0] == softmaxes[-1] < sum(softmaxes[1:])
