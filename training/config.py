"""A training configuration: TOML, checked by pydantic, unknown keys refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from multi_exit.configuration import read_toml, validate
from multi_exit.text_encoder import UnicodeForm
from training.data.config import DataConfig
from training.pooling import PoolingName

Method = Literal[
    "ce",
    "ce+scl",
    "acl-embed",
    "acl-grad",
    "acl-cl",
    "self-distillation",
    "deebert",
    "berxit",
]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
# strict: "4" and true are not numbers here.
Whole = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True)]
Weight = Annotated[float, Field(strict=True, ge=0)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelConfig(_Section):
    """[model]: the backbone, where its exits are, and how they pool."""

    backbone: str = Field(
        description="hub name, local folder, or package:IMPORT_NAME/FOLDER inside a Python package"
    )
    backbone_sha256: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="SHA-256 that model.safetensors must have"
    )
    layers: Whole | None = Field(None, ge=1, description="keep the first layers; all where absent")
    repeat_layers: Whole = Field(
        1, ge=1, description="use every layer this often as initialisation"
    )
    exits: tuple[Whole, ...] | None = Field(
        None, description="layers with an exit; all where absent"
    )
    pooling: PoolingName = "mean"
    dropout: Number = Field(0.1, ge=0, lt=1, description="before each classifier")
    max_length: Whole = Field(128, ge=8, description="tokens; longer texts are cut")
    unicode_form: UnicodeForm = "NFC"


class ObjectiveConfig(_Section):
    """[objective]: the method and its weights; see docs/training.md for the formulas."""

    method: Method = "acl-cl"
    temperature: Number = Field(0.1, gt=0)
    contrastive_weight: Number = Field(0.5, ge=0, description="lambda")
    teacher_weight: Number = Field(
        0.5, ge=0, description="mu, of the last exit as teacher: acl-cl and self-distillation"
    )
    distillation_temperature: Number = Field(2.0, gt=0, description="of self-distillation")
    exit_weights: tuple[Weight, ...] | None = Field(None, description="w_m; uniform where absent")
    last_exit_epochs: Whole = Field(
        0, ge=0, description="first so many epochs train backbone and last exit alone"
    )
    gate: Literal["representation", "parameters", "none"] = "representation"
    largest_angle: Number = Field(90.0, ge=0, le=180, description="degrees; above it a term drops")
    log_angles_every: Whole = Field(
        0, ge=0, description="steps between measurements of the angles in both scopes; 0 for never"
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.method == "acl-grad" and self.gate == "none":
            raise ValueError("acl-grad is acl-embed with a gate; choose a gate, or acl-embed")
        if self.exit_weights is not None and not sum(self.exit_weights) > 0:
            raise ValueError("one of exit_weights at least must be above 0")
        if self.method == "deebert" and self.last_exit_epochs == 0:
            raise ValueError(
                "deebert trains in two stages; set last_exit_epochs, the length of the first"
            )
        if self.method == "deebert" and self.exit_weights is not None:
            raise ValueError("deebert weighs its exits itself; leave exit_weights out")
        return self


class OptimiserConfig(_Section):
    """[optimiser]: AdamW with linear warm-up and decay."""

    backbone_learning_rate: Number = Field(5e-5, gt=0)
    exit_learning_rate: Number = Field(5e-4, gt=0)
    weight_decay: Number = Field(0.01, ge=0)
    warmup_share: Number = Field(0.1, ge=0, lt=1)
    gradient_clip: Number = Field(1.0, gt=0)


class RunConfig(_Section):
    """[run]: how long, how exactly, and when to stop."""

    epochs: Whole = Field(4, ge=1)
    batch_size: Whole = Field(32, ge=1)
    seed: Whole = Field(7, ge=0)
    precision: Precision = Field(
        "auto", description="auto: bf16 where the processor is made for it"
    )
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Whole = Field(0, ge=0, description="0 for all there are")
    early_stopping_epochs: Whole | None = Field(
        None, ge=1, description="stop after so many epochs without a better mean score"
    )
    checkpoint_steps: Whole = Field(200, ge=1, description="steps between states to resume from")


class TrainingConfig(_Section):
    """A whole run."""

    data: DataConfig
    model: ModelConfig
    objective: ObjectiveConfig = ObjectiveConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    run: RunConfig = RunConfig()

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        weights, exits = self.objective.exit_weights, self.model.exits
        if weights is not None and exits is not None and len(weights) != len(exits):
            raise ValueError(f"{len(weights)} exit_weights for {len(exits)} exits")
        if self.objective.last_exit_epochs >= self.run.epochs:
            raise ValueError(
                f"last_exit_epochs = {self.objective.last_exit_epochs} leaves none of "
                f"{self.run.epochs} epochs for the other exits"
            )
        if self.objective.last_exit_epochs and self.run.early_stopping_epochs is not None:
            raise ValueError("early_stopping_epochs does not go with last_exit_epochs")
        if self.run.early_stopping_epochs is not None and not self.data.validation:
            raise ValueError("early_stopping_epochs needs data.validation")
        return self


def load_config(path: Path, overrides: Sequence[str] = ()) -> TrainingConfig:
    """Reads a configuration; relative paths in it start at its own folder.

    overrides: `section.key=value`, on top of the file. Raises ConfigurationError that names the
    file and every key that is wrong.
    """
    content = read_toml(path, overrides)
    _anchor_paths(content, path.parent)
    return validate(TrainingConfig, content, path)


def _anchor_paths(content: dict[str, Any], folder: Path) -> None:
    data = content.get("data")
    if isinstance(data, dict):
        # With `dataset`, a name without ending is one of the data set's own splits.
        splits_by_name = "dataset" in data
        for key in ("train", "validation", "calibration", "test", "folder", "labels"):
            named = data.get(key)
            if isinstance(named, str) and (Path(named).suffix or not splits_by_name):
                data[key] = folder / named
    model = content.get("model")
    if isinstance(model, dict):
        backbone = model.get("backbone")
        # A hub name has no leading dot; a folder beside the configuration is written with one.
        if isinstance(backbone, str) and backbone.startswith("."):
            model["backbone"] = str(folder / backbone)
