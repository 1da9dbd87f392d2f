"""From an fp32 bundle to an int8 one: sealed whole after every check, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import export.quantise
from cli.main import main
from export.build import evaluate_on_test
from export.quantise import QuantiseConfig, load_quantise_config, quantise_bundle
from export.sensitivity import outputs_of
from multi_exit.bundle import Bundle, load_bundle
from multi_exit.errors import ConfigurationError, VerificationError
from multi_exit.offline import check_golden
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import TextInput
from tests.conftest import toy_rows
from tests.export.spoiled_graph import write_spoiled_int8

LENIENT = QuantiseConfig(largest_stage_cost=0.05, least_agreement=0.9)


@pytest.fixture(scope="module")
def int8_bundle(
    toy_bundle: Bundle, toy_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Bundle:
    target = tmp_path_factory.mktemp("int8") / "bundle"
    return quantise_bundle(toy_bundle.path, toy_checkpoint, target, LENIENT)


def _int8_weights(bundle: Bundle) -> list[int]:
    """Number of int8 matrices of each stage."""
    counts = []
    for stage in bundle.manifest.stages:
        graph = onnx.load(bundle.path / stage.file).graph
        counts.append(sum(t.data_type == onnx.TensorProto.INT8 for t in graph.initializer))
    return counts


def test_the_int8_bundle_answers_nearly_as_the_fp32_one_and_is_smaller(
    int8_bundle: Bundle, toy_bundle: Bundle
) -> None:
    assert int8_bundle.manifest.precision == "int8"
    texts = [TextInput(text) for text, _ in toy_rows(200, seed=6)]
    encoded = [toy_bundle.text_encoder().encode(text) for text in texts]
    before, after = outputs_of(toy_bundle, encoded), outputs_of(int8_bundle, encoded)
    assert ((before.labels == after.labels).mean(axis=0) > 0.9).all()
    # Not the same graphs under another name.
    assert (before.logits != after.logits).mean() > 0.5
    for stage in int8_bundle.manifest.stages[1:]:
        size = (int8_bundle.path / stage.file).stat().st_size
        assert size < (toy_bundle.path / stage.file).stat().st_size


def test_chosen_stages_and_their_costs_are_in_the_provenance(
    int8_bundle: Bundle, toy_bundle: Bundle
) -> None:
    told = int8_bundle.manifest.provenance.calibration["int8"]
    assert told["from_bundle"] == toy_bundle.identifier
    assert told["config"] == LENIENT.model_dump(mode="json")
    assert [cost["stage"] for cost in told["stage_costs"]] == [1, 2, 3]
    expected = [6 if stage in told["int8_stages"] else 0 for stage in (1, 2, 3)]
    assert _int8_weights(int8_bundle) == expected
    assert told["int8_stages"]


def test_operating_points_were_measured_on_the_int8_graphs(
    int8_bundle: Bundle, toy_bundle: Bundle, toy_checkpoint: Path
) -> None:
    points = int8_bundle.manifest.operating_points
    assert points != toy_bundle.manifest.operating_points
    assert {point.samples for point in points} == {270}
    assert points[0].name == "full-depth"
    report = evaluate_on_test(toy_checkpoint, int8_bundle)
    assert report.exits[-1].accuracy > 0.9


def test_golden_examples_are_clear_beyond_the_tolerance(int8_bundle: Bundle) -> None:
    manifest = int8_bundle.manifest
    runner = StageRunner(int8_bundle, provider="cpu", threads=1)
    check_golden(runner, int8_bundle, int8_bundle.text_encoder())
    margins = []
    for example in manifest.golden:
        ordered = np.sort(np.array(example.logits), axis=1)
        margins.append(float((ordered[:, -1] - ordered[:, -2]).min()))
    assert margins
    assert len(margins) == 1 or min(margins) > 2 * manifest.golden_tolerance


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (QuantiseConfig(largest_stage_cost=1.0, least_agreement=0.9), "keeps the fp32 label"),
        (QuantiseConfig(largest_stage_cost=0.0), "nothing is left to quantise"),
    ],
)
def test_int8_that_answers_otherwise_is_refused_and_nothing_is_left(
    toy_bundle: Bundle,
    toy_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    config: QuantiseConfig,
    message: str,
) -> None:
    monkeypatch.setattr(export.quantise, "write_int8", write_spoiled_int8)
    with pytest.raises(VerificationError, match=message):
        quantise_bundle(toy_bundle.path, toy_checkpoint, tmp_path / "int8", config)
    assert list(tmp_path.iterdir()) == []


def test_an_int8_bundle_is_not_quantised_again(
    int8_bundle: Bundle, toy_checkpoint: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="is int8"):
        quantise_bundle(int8_bundle.path, toy_checkpoint, tmp_path / "twice", LENIENT)


def test_the_fp32_bundle_is_not_replaced(toy_bundle: Bundle, toy_checkpoint: Path) -> None:
    with pytest.raises(ConfigurationError, match="own folder"):
        quantise_bundle(toy_bundle.path, toy_checkpoint, toy_bundle.path, LENIENT)
    assert load_bundle(toy_bundle.path).identifier == toy_bundle.identifier


def test_another_checkpoint_is_refused(
    toy_bundle: Bundle, toy_checkpoint: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(toy_checkpoint, other)
    weights = other / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ConfigurationError, match="was not exported from"):
        quantise_bundle(toy_bundle.path, other, tmp_path / "int8", LENIENT)


def test_an_unknown_key_of_the_configuration_is_named(tmp_path: Path) -> None:
    path = tmp_path / "quantise.toml"
    path.write_text("least_agreement = 0.97\n")
    assert load_quantise_config(path) == QuantiseConfig(least_agreement=0.97)
    path.write_text("least_agrement = 0.97\n")
    with pytest.raises(ConfigurationError, match="least_agrement"):
        load_quantise_config(path)


def test_the_command_seals_a_bundle_and_tells_its_points(
    toy_bundle: Bundle, toy_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "quantise.toml"
    config.write_text("largest_stage_cost = 0.05\nleast_agreement = 0.9\n")
    target = tmp_path / "int8"
    made_from = [str(toy_bundle.path), str(toy_checkpoint)]
    assert main(["quantise", *made_from, "--output", str(target), "--config", str(config)]) == 0
    told = capsys.readouterr().out
    assert f"sealed bundle {load_bundle(target).identifier}" in told
    assert "full-depth: 1.00x" in told
