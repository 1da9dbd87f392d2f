"""The [data] section of a training configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

GlueTask = Literal["cola", "sst2", "mrpc", "qqp", "mnli", "qnli", "rte"]
MetricName = Literal["accuracy", "f1", "matthews"]
Share = Annotated[float, Field(ge=0.0, lt=1.0, strict=True)]


class DataConfig(BaseModel):
    """Where labelled texts come from.

    One of: `train` (a CSV, TSV, JSONL or Parquet file), `glue` with `folder` or `train`, or
    `dataset` (a name that the `datasets` library loads). validation, calibration and test are each
    a file, or a share that is held out of the training texts (0 for none); with `dataset` also the
    name of one of its splits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    train: Path | None = None
    glue: GlueTask | None = None
    folder: Path | None = Field(None, description="folder of the GLUE task's files")
    dataset: str | None = Field(None, description="name for the `datasets` library")
    dataset_configuration: str | None = None
    validation: Share | Path | None = 0.05
    calibration: Share | Path | None = 0.1
    test: Share | Path | None = None
    train_limit: int | None = Field(
        None, ge=1, strict=True, description="train on so many texts at most, drawn by split_seed"
    )
    text_column: str = "text"
    text_pair_column: str | None = None
    label_column: str = "label"
    labels: tuple[str, ...] | Path | None = Field(
        None, description="label names in order, or a JSON list or text file of them; else sorted"
    )
    metric: MetricName | None = Field(
        None, description="what chooses the best epoch; the task's own, or accuracy, where absent"
    )
    split_seed: int = Field(
        17, strict=True, description="draws the held-out shares; apart from the run's seed"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.glue is not None:
            if self.dataset is not None:
                raise ValueError("name either glue or dataset")
            if self.folder is None and self.train is None:
                raise ValueError("glue needs folder, or train, to find the task's files")
            return self
        if self.folder is not None:
            raise ValueError("folder goes with glue")
        if (self.train is None) == (self.dataset is None):
            raise ValueError("name exactly one of train, glue and dataset")
        if self.dataset is None and self.dataset_configuration is not None:
            raise ValueError("dataset_configuration goes with dataset")
        return self

    @model_validator(mode="after")
    def _splits_leave_training(self) -> Self:
        splits = {name: getattr(self, name) for name in ("validation", "calibration", "test")}
        if sum(share for share in splits.values() if isinstance(share, float)) >= 0.9:
            raise ValueError("the shares held out leave less than a tenth for training")
        for name, path in splits.items():
            if isinstance(path, Path) and path == self.train:
                raise ValueError(f"{name} and train are the same file; give a share instead")
        return self

    def files(self) -> tuple[Path, ...]:
        """The files named here, for fingerprints; a GLUE folder's files are its own."""
        named: list[object] = [self.train, self.labels]
        if self.dataset is None:
            named += [self.validation, self.calibration, self.test]
        found = [path for path in named if isinstance(path, Path)]
        if self.folder is not None:
            found += sorted(path for path in self.folder.iterdir() if path.is_file())
        return tuple(found)
