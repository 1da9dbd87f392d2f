"""The joined graph is the same model, and the measurement of a toy bundle gives whole figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.engine.single_graph import join_stages
from bench.engine.staging import SHAPES, run_all_stages
from cli.main import main
from multi_exit.batch import TokenBatch
from multi_exit.bundle import Bundle
from multi_exit.runner import StageRunner, open_session


def test_one_graph_says_at_every_exit_what_the_stages_say(
    toy_bundle: Bundle, tmp_path: Path
) -> None:
    join_stages(toy_bundle, tmp_path / "joined.onnx")
    runner = StageRunner(toy_bundle, provider="cpu", threads=1)
    joined = open_session(tmp_path / "joined.onnx", "cpu")
    rng = np.random.default_rng(0)
    tokens = TokenBatch(
        input_ids=rng.integers(5, 100, (4, 12)),
        attention_mask=np.ones((4, 12), dtype=np.int64),
        token_type_ids=np.zeros((4, 12), dtype=np.int64),
    )
    tokens.attention_mask[1, 7:] = 0
    inputs = {name: getattr(tokens, name) for name in toy_bundle.manifest.model_inputs}
    names = [f"logits_{stage:02d}" for stage in range(1, runner.stages + 1)]
    found = joined.run(names, {**inputs, "keep": np.arange(4)})
    result = runner.start(tokens)
    np.testing.assert_allclose(found[0], result.logits, atol=1e-5)
    np.testing.assert_allclose(found[-1], run_all_stages(runner, tokens), atol=1e-5)


def test_the_command_prints_one_json_object_with_machine_and_ratios(
    toy_bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "staging", str(toy_bundle.path), "--rounds", "2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["machine"]["cores"] >= 1
    assert figures["bundle"] == toy_bundle.identifier
    shapes = [(row["rows"], row["length"]) for row in figures["staging"]]
    assert shapes == [shape for shape in SHAPES if shape[1] <= toy_bundle.manifest.max_length]
    for row in figures["staging"]:
        assert row["overhead"]["low"] <= row["overhead"]["median"] <= row["overhead"]["high"]


def test_one_round_is_refused(toy_bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "staging", str(toy_bundle.path), "--rounds", "1"]) == 2
    assert "--rounds" in capsys.readouterr().err
