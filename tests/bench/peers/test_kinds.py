"""How peers are chosen, installed and asked; nothing is downloaded here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from bench.peers.contender import Contender
from bench.peers.elsewhere import check_answers, contender_elsewhere
from bench.peers.environment import programs_of
from bench.peers.kinds import OWN_PROGRAMS, PEERS, PIPELINE, peer_kind
from bench.peers.triton import write_model_repository
from multi_exit.bundle import Bundle
from multi_exit.errors import ConfigurationError


def test_every_requirement_is_pinned_and_every_program_of_ours_is_there() -> None:
    for kind in PEERS.values():
        assert all("==" in requirement for requirement in kind.requirements)
        command = kind.command(Path("/env/bin"), Path("/model"), 1234, 2)
        assert command[0].startswith("/env/bin/")
        assert "1234" in command
        assert "/model" in command
        assert all(Path(word).is_file() for word in command if word.endswith(".py"))
        assert "rain" in kind.body("rain").decode()


def test_an_unknown_peer_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match="litserve"):
        peer_kind("nothing")


def test_the_pipeline_runs_in_our_own_environment(tmp_path: Path) -> None:
    assert programs_of(PIPELINE, tmp_path) == OWN_PROGRAMS
    assert not list(tmp_path.iterdir())


def test_an_environment_is_made_once_and_again_for_other_requirements(tmp_path: Path) -> None:
    (tmp_path / "peers" / "made").mkdir(parents=True)
    kind = replace(PEERS["litserve"], name="made", requirements=("kept==1",))
    (tmp_path / "peers" / "made" / "installed.txt").write_text("kept==1")
    assert programs_of(kind, tmp_path / "peers") == tmp_path / "peers" / "made" / "bin"
    missing = replace(kind, requirements=(f"{tmp_path}/no-such-1.0-py3-none-any.whl",))
    with pytest.raises(ConfigurationError, match="made cannot be installed"):
        programs_of(missing, tmp_path / "peers")
    assert not (tmp_path / "peers" / "made" / "installed.txt").exists()


def test_peers_elsewhere_are_asked_in_their_own_way(toy_bundle: Bundle) -> None:
    tei = contender_elsewhere("tei=http://127.0.0.1:8080/", toy_bundle)
    assert tei.url == "http://127.0.0.1:8080/predict"
    assert json.loads(tei.body("rain")) == {"inputs": "rain"}
    triton = contender_elsewhere("triton=http://127.0.0.1:8000", toy_bundle)
    assert triton.url == "http://127.0.0.1:8000/v2/models/classifier/infer"
    asked = json.loads(triton.body("rain and sun"))["inputs"]
    assert [tensor["name"] for tensor in asked] == list(toy_bundle.manifest.model_inputs)
    for tensor in asked:
        assert tensor["shape"] == [1, len(tensor["data"])]
        assert tensor["shape"][1] in toy_bundle.manifest.length_buckets
    for wrong in ("tei", "tei=127.0.0.1", "other=http://127.0.0.1"):
        with pytest.raises(ConfigurationError, match="tei"):
            contender_elsewhere(wrong, toy_bundle)


def test_a_peer_that_does_not_answer_is_named() -> None:
    contender = Contender(name="gone", url="http://127.0.0.1:9/predict", body=lambda text: b"")
    with pytest.raises(ConfigurationError, match="gone at"):
        check_answers(contender, ["rain"])


def test_the_model_repository_holds_a_graph_that_takes_what_is_asked(
    toy_bundle: Bundle, tmp_path: Path
) -> None:
    write_model_repository(toy_bundle, tmp_path)
    graph = onnx.load(tmp_path / "classifier" / "1" / "model.onnx").graph
    configuration = (tmp_path / "classifier" / "config.pbtxt").read_text()
    for value in graph.input:
        assert f'name: "{value.name}" data_type: TYPE_INT64' in configuration
        assert value.type.tensor_type.elem_type == onnx.TensorProto.INT64
        assert len(value.type.tensor_type.shape.dim) == 2
    (logits,) = (value for value in graph.output if value.name == "logits")
    assert f"dims: [ {logits.type.tensor_type.shape.dim[1].dim_value} ]" in configuration
