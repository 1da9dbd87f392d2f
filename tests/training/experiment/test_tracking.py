"""Tracking: every number of a history is written once, under its exit, at its step."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event

from multi_exit.errors import CheckpointError
from tests.training.models import small_config
from training.experiment.tracking import write_scalars
from training.history import HISTORY_FILE
from training.train import train


@pytest.fixture(scope="module")
def checkpoint(few_texts: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 14 steps that measured its angles four times."""
    config = small_config(few_texts, tiny_bert, objective={"log_angles_every": 4})
    return train(config, tmp_path_factory.mktemp("tracked") / "run").path


def scalars(folder: Path) -> dict[tuple[str, int], float]:
    """Everything in the event file: records of length, checksum, event, checksum."""
    (path,) = folder.iterdir()
    content, found = path.read_bytes(), {}
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        event = Event.FromString(content[12 : 12 + length])
        for value in event.summary.value:
            assert (value.tag, event.step) not in found, "written once"
            found[value.tag, event.step] = value.simple_value
        content = content[16 + length :]
    return found


def test_scores_and_angles_stand_under_their_exit(checkpoint: Path, tmp_path: Path) -> None:
    write_scalars(checkpoint, tmp_path / "events")
    found = scalars(tmp_path / "events")
    lines = [json.loads(line) for line in (checkpoint / HISTORY_FILE).read_text().splitlines()]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    angles = [line for line in lines if line["kind"] == "angles"]
    assert len(epochs) == 2
    assert len(angles) == 4
    for line in epochs:
        for layer in (1, 2, 3):
            tag = f"validation_accuracy/exit_{layer}"
            assert found.pop((tag, line["step"])) == pytest.approx(
                line["scores_by_exit"][layer - 1]
            )
    for line in angles:
        for term, exits in (("contrastive", 3), ("teacher", 2)):
            degrees = line["representation"][f"{term}_degrees"]
            for index in range(exits):
                tag = f"angle_{term}/representation/exit_{index + 1}"
                assert found.pop((tag, line["step"])) == pytest.approx(degrees[index])
            whole = found.pop((f"angle_{term}/parameters", line["step"]))
            assert whole == pytest.approx(line["parameters"][f"{term}_degrees"][0])
    assert found == {}


def test_losses_are_written_and_absent_terms_are_not(checkpoint: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "checkpoint.json").write_bytes((checkpoint / "checkpoint.json").read_bytes())
    line = {
        "kind": "step",
        "step": 50,
        "total": 1.5,
        "cross_entropy": [0.1, 0.2, 0.3],
        "contrastive": None,
        "teacher": [0.4, 0.5],
    }
    (run / HISTORY_FILE).write_text(json.dumps(line) + "\n")
    write_scalars(run, tmp_path / "events")
    assert scalars(tmp_path / "events") == {
        ("loss/total", 50): 1.5,
        ("loss/cross_entropy/exit_1", 50): pytest.approx(0.1),
        ("loss/cross_entropy/exit_2", 50): pytest.approx(0.2),
        ("loss/cross_entropy/exit_3", 50): pytest.approx(0.3),
        ("loss/teacher/exit_1", 50): pytest.approx(0.4),
        ("loss/teacher/exit_2", 50): pytest.approx(0.5),
    }
    before = scalars(tmp_path / "events")
    write_scalars(run, tmp_path / "events")
    assert scalars(tmp_path / "events") == before, "a second time changes nothing"
    (run / HISTORY_FILE).write_text('{"kind": "step", "step": 1}\n')
    with pytest.raises(CheckpointError, match=r"history\.jsonl is damaged"):
        write_scalars(run, tmp_path / "other")
