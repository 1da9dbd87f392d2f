"""What training leaves behind: safetensors, configurations and the tokenizer; nothing unpickled."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from multi_exit.errors import CheckpointError, ConfigurationError
from multi_exit.text_encoder import UnicodeForm
from training.backbone import empty_backbone
from training.config import TrainingConfig
from training.history import HISTORY_FILE
from training.model import MultiExitModel

WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
MANIFEST_FILE = "checkpoint.json"
_LIBRARIES = ("numpy", "safetensors", "tokenizers", "torch", "transformers")


class CheckpointManifest(BaseModel):
    """Content of checkpoint.json. scores_by_exit: on validation texts, empty without any.

    contrastive_kept_by_exit: share of mini-batches whose contrastive term the gate kept.
    scopes_agree: share of measured decisions that both gate scopes take alike, None if never
    measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1] = 1
    labels: tuple[str, ...]
    exits: tuple[int, ...]
    layers: int
    max_length: int
    unicode_form: UnicodeForm
    takes_pairs: bool
    metric: str
    scores_by_exit: tuple[float, ...]
    epochs: int
    steps: int
    training_seconds: float
    contrastive_kept_by_exit: tuple[float, ...]
    scopes_agree: float | None = None
    data_sha256: dict[str, str]
    configuration: TrainingConfig
    library_versions: dict[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A loaded checkpoint; the model is on the CPU, in evaluation mode."""

    path: Path
    manifest: CheckpointManifest
    model: MultiExitModel

    @property
    def tokenizer_file(self) -> Path:
        return self.path / TOKENIZER_FILE


def library_versions() -> dict[str, str]:
    """Versions of what a checkpoint depends on."""
    return {name: version(name) for name in _LIBRARIES}


def save_checkpoint(
    target: Path,
    *,
    weights: Mapping[str, Tensor],
    model: MultiExitModel,
    tokenizer: Tokenizer,
    manifest: CheckpointManifest,
    history: Path | None = None,
) -> None:
    """Writes a folder beside `target` and renames it: whole or not there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        save_file(dict(weights), scratch / WEIGHTS_FILE)
        model.backbone.config.save_pretrained(scratch)
        tokenizer.save(str(scratch / TOKENIZER_FILE))
        (scratch / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=1) + "\n")
        if history is not None:
            shutil.copyfile(history, scratch / HISTORY_FILE)
        scratch.chmod(0o755)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def load_manifest(path: Path) -> CheckpointManifest:
    """Reads checkpoint.json. Raises CheckpointError."""
    try:
        content = (path / MANIFEST_FILE).read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path} is not a checkpoint: cannot read {MANIFEST_FILE} ({error.strerror}). "
            "Make one with `patamar train`."
        ) from error
    try:
        return CheckpointManifest.model_validate_json(content)
    except ValidationError as error:
        raise CheckpointError(f"{path / MANIFEST_FILE} is of another format: {error}") from error


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint. Raises CheckpointError for one that is missing, damaged or foreign."""
    manifest = load_manifest(path)
    try:
        backbone = empty_backbone(path)
    except (OSError, ValueError, ConfigurationError) as error:
        raise CheckpointError(f"{path / 'config.json'} names no usable model: {error}") from error
    model = MultiExitModel(
        backbone,
        exits=manifest.exits,
        labels=len(manifest.labels),
        pooling=manifest.configuration.model.pooling,
        dropout=manifest.configuration.model.dropout,
    )
    try:
        model.load_state_dict(load_file(path / WEIGHTS_FILE))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise CheckpointError(
            f"{path / WEIGHTS_FILE} does not fit the checkpoint: {error}"
        ) from error
    return Checkpoint(path, manifest, model.eval())
