"""A finished cell of an experiment, one JSON object a line, with all that makes it repeatable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from multi_exit.errors import DataError
from training.config import TrainingConfig

Curve = tuple[tuple[float, float], ...]


class Cell(BaseModel):
    """One finished training.

    settings: what differs from the task's own configuration. quality_speed and exit_rules: pairs
    of average layers run and score. configuration: the whole one, file names without folders.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    method: str
    seed: int
    settings: dict[str, str]
    metric: str
    split: str
    samples: int = Field(ge=1)
    exits: tuple[int, ...] = Field(min_length=1)
    score_by_exit: tuple[float, ...] = Field(min_length=1)
    quality_speed: Curve = Field(min_length=1)
    exit_rules: dict[str, Curve]
    steps: int
    training_seconds: float
    contrastive_kept_by_exit: tuple[float, ...]
    configuration: dict[str, Any]
    configuration_sha256: str
    data_sha256: dict[str, str]
    library_versions: dict[str, str]

    @property
    def layers(self) -> int:
        return self.exits[-1]

    @property
    def mean_score(self) -> float:
        """Mean over the exits."""
        return sum(self.score_by_exit) / len(self.score_by_exit)

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What makes two lines the same cell."""
        return (self.task, self.method, self.seed, self.configuration_sha256)


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
    cells: dict[tuple[str, str, int, str], Cell] = {}
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
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read cells from {path}: {error}") from error
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if line.endswith("\n") and line.strip():
            yield number, line
