"""Backbones by folder or Python package, and their pinned weights."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import pytest

from multi_exit.errors import ConfigurationError
from training.backbone_source import load_tokenizer, resolve_backbone
from training.config import ModelConfig


@pytest.fixture
def package(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python package that carries a model, and that nobody may import."""
    folder = tmp_path / "carries_a_model"
    shutil.copytree(tiny_bert, folder / "weights" / "small")
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_a_package_is_found_without_running_its_code(package: Path) -> None:
    config = ModelConfig(backbone="package:carries_a_model/weights/small")
    assert Path(resolve_backbone(config)) == package / "weights" / "small"
    assert "carries_a_model" not in sys.modules


@pytest.mark.parametrize(
    ("backbone", "reason"),
    [
        ("package:not_installed_anywhere/model", "is not installed"),
        ("package:carries_a_model/other", "has no folder 'other'"),
        ("package:carries_a_model.weights/small", "is not installed"),
        ("package:json/model", "has no folder"),
        ("package:", "is not installed"),
    ],
)
def test_a_package_that_does_not_carry_it_is_refused(
    package: Path, backbone: str, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        resolve_backbone(ModelConfig(backbone=backbone))


def test_weights_are_held_to_their_digest(tiny_bert: Path) -> None:
    digest = hashlib.sha256((tiny_bert / "model.safetensors").read_bytes()).hexdigest()
    config = ModelConfig(backbone=str(tiny_bert), backbone_sha256=digest)
    assert resolve_backbone(config) == str(tiny_bert)
    with pytest.raises(ConfigurationError, match="it is another model"):
        resolve_backbone(config.model_copy(update={"backbone_sha256": "0" * 64}))


def test_a_digest_needs_weights(tmp_path: Path) -> None:
    config = ModelConfig(backbone=str(tmp_path), backbone_sha256="0" * 64)
    with pytest.raises(ConfigurationError, match=r"no model\.safetensors"):
        resolve_backbone(config)


def test_the_tokenizer_is_a_fast_one(tiny_bert: Path) -> None:
    assert load_tokenizer(str(tiny_bert)).token_to_id("[PAD]") == 0


def test_a_missing_tokenizer_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((tiny_bert / "config.json").read_bytes())
    with pytest.raises(ConfigurationError, match="tokenizer"):
        load_tokenizer(str(tmp_path))
