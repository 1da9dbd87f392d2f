"""Checkpoints: what is in the folder, what comes back, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from multi_exit.errors import CheckpointError, DataError
from multi_exit.text_encoder import TextEncoder
from tests.training.models import random_tokens
from training.checkpoint import load_checkpoint, load_manifest
from training.provenance import splits_of


@pytest.fixture
def copied(toy_checkpoint: Path, tmp_path: Path) -> Path:
    return shutil.copytree(toy_checkpoint, tmp_path / "checkpoint")


def test_a_checkpoint_is_four_files_and_a_history(toy_checkpoint: Path) -> None:
    assert sorted(path.name for path in toy_checkpoint.iterdir()) == [
        "checkpoint.json",
        "config.json",
        "history.jsonl",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_loading_twice_gives_the_same_model_ready_to_answer(toy_checkpoint: Path) -> None:
    first, second = load_checkpoint(toy_checkpoint), load_checkpoint(toy_checkpoint)
    assert not first.model.training
    vocabulary = first.model.backbone.config.vocab_size
    tokens = random_tokens(3, 9, vocabulary=vocabulary, pad=0)
    with torch.no_grad():
        torch.testing.assert_close(first.model(**tokens).logits, second.model(**tokens).logits)
    encoder = TextEncoder.from_file(first.tokenizer_file, max_length=first.manifest.max_length)
    assert encoder.pad_token_id == first.model.pad_token_id


def test_the_manifest_says_what_made_it(toy_checkpoint: Path) -> None:
    manifest = load_manifest(toy_checkpoint)
    assert manifest.labels == ("food", "music", "weather")
    assert set(manifest.data_sha256) == {"train", "validation", "calibration", "test"}
    assert manifest.configuration.run.seed == 7
    assert {"torch", "transformers", "tokenizers"} <= manifest.library_versions.keys()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("checkpoint.json", None),
        ("checkpoint.json", b"{}"),
        ("checkpoint.json", b"\xff\xfe"),
        ("config.json", None),
        ("config.json", b"{}"),
        ("model.safetensors", None),
        ("model.safetensors", b"short"),
    ],
)
def test_a_missing_or_damaged_file_is_named(copied: Path, name: str, content: bytes | None) -> None:
    if content is None:
        (copied / name).unlink()
    else:
        (copied / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        load_checkpoint(copied)


def test_weights_of_another_shape_are_refused(copied: Path) -> None:
    manifest = json.loads((copied / "checkpoint.json").read_text())
    manifest["labels"].append("fourth")
    (copied / "checkpoint.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="does not fit"):
        load_checkpoint(copied)


def test_the_splits_of_a_checkpoint_come_back(toy_checkpoint: Path) -> None:
    manifest = load_manifest(toy_checkpoint)
    splits = splits_of(manifest)
    assert splits.fingerprints == manifest.data_sha256
    assert splits.labels == manifest.labels


def test_data_that_changed_since_are_refused(copied: Path, toy_data: Path, tmp_path: Path) -> None:
    manifest = json.loads((copied / "checkpoint.json").read_text())
    moved = tmp_path / "train.csv"
    moved.write_text((toy_data / "train.csv").read_text() + "one more,food\n")
    manifest["configuration"]["data"]["train"] = str(moved)
    (copied / "checkpoint.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="the data changed since the checkpoint was trained"):
        splits_of(load_manifest(copied))
