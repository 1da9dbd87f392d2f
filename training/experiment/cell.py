"""A finished cell of an experiment, one JSON object a line, with all that makes it repeatable."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from multi_exit.errors import DataError
from training.config import TrainingConfig
from training.data.config import MetricName

if TYPE_CHECKING:
    # Both load torch, which a table of finished cells does without.
    from training.checkpoint import CheckpointManifest
    from training.evaluate import EvaluationReport

Name = Annotated[str, Field(min_length=1)]
# A share of texts or a correlation, not points of 100.
Score = Annotated[float, Field(ge=-1, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]
# Average layers run, and the score there.
Points = Annotated[tuple[tuple[float, Score], ...], Field(min_length=1)]
Key = tuple[str, str, int, str, str]


class Cell(BaseModel):
    """One finished training, and how every exit did on `samples` texts of a split.

    settings: what differs from the task's own configuration. exits: layers with an exit, the last
    one being the last layer. quality_speed: along thresholds of the entropy; exit_rules: the same
    for every exit rule, by name. contrastive_kept_by_exit: see `CheckpointManifest`.
    configuration: what is not a default, file names without folders.
    """

    # strict: "3" and true are no numbers, and neither is NaN.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    task: Name
    method: Name
    seed: int
    settings: dict[str, str]
    metric: MetricName
    split: Name
    samples: int = Field(ge=1)
    exits: tuple[int, ...] = Field(min_length=1)
    score_by_exit: tuple[Score, ...]
    quality_speed: Points
    exit_rules: dict[str, Points]
    steps: int = Field(ge=0)
    training_seconds: float = Field(ge=0)
    contrastive_kept_by_exit: tuple[Share, ...]
    configuration: dict[str, Any]
    configuration_sha256: str
    data_sha256: dict[str, str]
    library_versions: dict[str, str]

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.exits[0] < 1 or any(b <= a for a, b in itertools.pairwise(self.exits)):
            raise ValueError(f"exits must ascend from 1; got {list(self.exits)}")
        for name in ("score_by_exit", "contrastive_kept_by_exit"):
            if len(getattr(self, name)) != len(self.exits):
                raise ValueError(f"{name}: {len(getattr(self, name))} for {len(self.exits)} exits")
        for name, points in {"quality_speed": self.quality_speed, **self.exit_rules}.items():
            if not all(self.exits[0] <= layers <= self.layers for layers, _ in points):
                raise ValueError(f"{name} leaves the layers {self.exits[0]} to {self.layers}")
        return self

    @property
    def layers(self) -> int:
        return self.exits[-1]

    @property
    def mean_score(self) -> float:
        """Mean over the exits."""
        return sum(self.score_by_exit) / len(self.score_by_exit)

    @property
    def key(self) -> Key:
        """What makes two lines the same cell."""
        return (self.task, self.method, self.seed, self.split, self.configuration_sha256)


def measured_cell(
    manifest: CheckpointManifest,
    report: EvaluationReport,
    *,
    task: str,
    method: str,
    settings: dict[str, str],
    split: str,
) -> Cell:
    """The cell of a trained checkpoint and its scores on a split, rounded to six digits."""
    configuration = manifest.configuration
    return Cell(
        task=task,
        method=method,
        seed=configuration.run.seed,
        settings=settings,
        metric=report.metric,
        split=split,
        samples=report.samples,
        exits=report.exits,
        score_by_exit=_rounded(report.scores_by_exit),
        quality_speed=_rounded_points(report.quality_speed),
        exit_rules={rule: _rounded_points(points) for rule, points in report.exit_rules.items()},
        steps=manifest.steps,
        training_seconds=round(manifest.training_seconds, 1),
        contrastive_kept_by_exit=_rounded(manifest.contrastive_kept_by_exit),
        configuration=portable(configuration),
        configuration_sha256=configuration_digest(configuration),
        data_sha256=manifest.data_sha256,
        library_versions=manifest.library_versions,
    )


def portable(config: TrainingConfig) -> dict[str, Any]:
    """A configuration as plain data, of paths only the names: the same on every machine."""
    content: dict[str, Any] = config.model_dump(mode="json", exclude_defaults=True)
    data = content["data"]
    for key, value in data.items():
        if isinstance(getattr(config.data, key), Path):
            data[key] = Path(value).name
    backbone = Path(config.model.backbone)
    if backbone.is_absolute():
        content["model"]["backbone"] = backbone.name
    return content


def configuration_digest(config: TrainingConfig) -> str:
    """SHA-256 of a configuration's portable form."""
    return hashlib.sha256(json.dumps(portable(config), sort_keys=True).encode()).hexdigest()


def read_cells(path: Path) -> tuple[Cell, ...]:
    """All cells of a file; of equal keys the last. An unfinished last line is left out.

    Raises DataError that names file and line.
    """
    cells: dict[Key, Cell] = {}
    for number, line in _whole_lines(path):
        try:
            cell = Cell.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise DataError(f"{path}, line {number}: {where}: {first['msg']}") from error
        cells[cell.key] = cell
    return tuple(cells.values())


def add_cell(path: Path, cell: Cell) -> None:
    """Appends a cell, after removing what a killed run left of a line."""
    whole = "".join(line for _, line in _whole_lines(path)) if path.exists() else ""
    scratch = path.with_name(f"{path.name}.writing")
    scratch.write_text(whole + cell.model_dump_json() + "\n", encoding="utf-8")
    scratch.replace(path)


def _whole_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their number from 1; the one that a killed run was writing is left out."""
    try:
        # Cut in the middle of a letter, the unfinished line is no UTF-8.
        content, newline, _ = path.read_bytes().rpartition(b"\n")
        text = (content + newline).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read cells from {path}: {error}") from error
    # Not splitlines: a label may hold U+2028, which ends no line of JSON.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line + "\n"


def _rounded(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(round(value, 6) for value in values)


def _rounded_points(pairs: Points) -> Points:
    return tuple((round(layers, 4), round(quality, 6)) for layers, quality in pairs)
