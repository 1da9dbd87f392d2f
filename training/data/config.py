"""The [data] section of a training configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

GlueTask = Literal["cola", "sst2", "mrpc", "qqp", "mnli", "qnli", "rte"]
Share = Annotated[float, Field(gt=0.0, lt=1.0)]


class DataConfig(BaseModel):
    """Where labelled texts come from.

    One of: `train` (a CSV, TSV, JSONL or Parquet file), `glue` with `folder`, or `dataset`
    (a name that the `datasets` library loads). validation, calibration and test are each a
    file, or a share that is held out of the training texts; absent means none.
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
    text_column: str = "text"
    text_pair_column: str | None = None
    label_column: str = "label"
    labels: tuple[str, ...] | Path | None = Field(
        None, description="label names in order, or a JSON list or text file of them; else sorted"
    )
    split_seed: int = Field(17, description="draws the held-out shares; apart from the run's seed")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = [name for name in ("train", "glue", "dataset") if getattr(self, name) is not None]
        if len(sources) != 1:
            raise ValueError(
                f"name exactly one of train, glue and dataset; got {sources or 'none'}"
            )
        if (self.glue is None) != (self.folder is None):
            raise ValueError("glue and folder go together")
        held_out = [
            share
            for share in (self.validation, self.calibration, self.test)
            if isinstance(share, float)
        ]
        if sum(held_out) >= 0.9:
            raise ValueError("the shares held out leave less than a tenth for training")
        return self

    def files(self) -> tuple[Path, ...]:
        """The files named here, for fingerprints; a GLUE folder's files are its own."""
        named = (self.train, self.validation, self.calibration, self.test, self.labels)
        found = [path for path in named if isinstance(path, Path)]
        if self.folder is not None:
            found += sorted(path for path in self.folder.iterdir() if path.is_file())
        return tuple(found)
