"""Checkpoints: what is in the folder, what comes back, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

import training.checkpoint
from multi_exit.errors import CheckpointError, DataError
from multi_exit.text_encoder import TextEncoder
from tests.conftest import FAMILIES, MakeBackbone
from tests.training.models import random_tokens
from training.backbone import load_backbone
from training.backbone_source import load_tokenizer
from training.checkpoint import load_checkpoint, load_manifest, save_checkpoint
from training.model import MultiExitModel
from training.pooling import PoolingName
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


def test_nothing_is_pickled_or_unpickled(toy_checkpoint: Path) -> None:
    for path in toy_checkpoint.iterdir():
        content = path.read_bytes()
        # torch.save writes a zip archive, pickle starts with its protocol.
        assert not content.startswith((b"PK", b"\x80")), path.name
        if path.suffix in (".json", ".jsonl"):
            for line in content.splitlines() if path.suffix == ".jsonl" else [content]:
                json.loads(line)
    package = Path(training.checkpoint.__file__).parent
    for source in package.rglob("*.py"):
        code = source.read_text()
        for call in ("torch.load", "torch.save", "import pickle", "joblib", "allow_pickle"):
            assert call not in code, f"{source.name} uses {call}"


@pytest.mark.parametrize("pooling", ["cls", "mean", "attention"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_and_pooling_comes_back_with_the_same_answers(
    make_backbone: MakeBackbone,
    toy_checkpoint: Path,
    tmp_path: Path,
    family: str,
    pooling: PoolingName,
) -> None:
    folder = make_backbone(family)
    made = load_backbone(str(folder), layers=2, repeat_layers=2)
    model = MultiExitModel(made, exits=(1, 4), labels=3, pooling=pooling).eval()
    manifest = load_manifest(toy_checkpoint)
    settings = manifest.configuration
    save_checkpoint(
        tmp_path / "checkpoint",
        weights=model.state_dict(),
        model=model,
        tokenizer=load_tokenizer(str(folder)),
        manifest=manifest.model_copy(
            update={
                "exits": (1, 4),
                "layers": 4,
                "configuration": settings.model_copy(
                    update={"model": settings.model.model_copy(update={"pooling": pooling})}
                ),
            }
        ),
    )
    loaded = load_checkpoint(tmp_path / "checkpoint").model
    pad = model.pad_token_id
    tokens = random_tokens(3, 9, vocabulary=made.config.vocab_size, pad=pad)
    with torch.no_grad():
        assert torch.equal(loaded(**tokens).logits, model(**tokens).logits)
    assert loaded.input_names == model.input_names
    assert loaded.pad_token_id == pad
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_checkpoint_that_cannot_be_written_whole_is_not_written(
    toy_checkpoint: Path, tmp_path: Path
) -> None:
    checkpoint = load_checkpoint(toy_checkpoint)
    with pytest.raises(FileNotFoundError):
        save_checkpoint(
            tmp_path / "checkpoint",
            weights=checkpoint.model.state_dict(),
            model=checkpoint.model,
            tokenizer=Tokenizer.from_file(str(checkpoint.tokenizer_file)),
            manifest=checkpoint.manifest,
            history=tmp_path / "nowhere.jsonl",
        )
    assert not list(tmp_path.iterdir())


def test_a_whole_checkpoint_is_not_overwritten(toy_checkpoint: Path, copied: Path) -> None:
    checkpoint = load_checkpoint(toy_checkpoint)
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    with pytest.raises(OSError, match="not empty"):
        save_checkpoint(
            copied,
            weights={},
            model=checkpoint.model,
            tokenizer=Tokenizer.from_file(str(checkpoint.tokenizer_file)),
            manifest=checkpoint.manifest,
        )
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before
    assert [path.name for path in copied.parent.iterdir()] == [copied.name]
