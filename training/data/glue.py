"""GLUE's own file formats: unquoted TSV, with or without header, each with its label order."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from multi_exit.errors import DataError
from training.data.config import GlueTask, MetricName
from training.data.example import LabelledExample
from training.data.tables import read_lines

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueFormat:
    """How one task's files are laid out.

    Columns are names in the header, or positions where there is none. label_names maps what the
    file says to the label's name; its order is the label order. dev is the evaluation file.
    metrics: what the task reports; the first chooses the best epoch. skips_damaged: lines with too
    few fields or an empty text are left out and counted, since the official file has some.
    """

    text: str | int
    label: str | int
    label_names: dict[str, str]
    text_pair: str | int | None = None
    dev: str = "dev.tsv"
    has_header: bool = True
    metrics: tuple[MetricName, ...] = ("accuracy",)
    skips_damaged: bool = False
    columns_without_header: int = 0


_ENTAILMENT = {name: name for name in ("entailment", "not_entailment")}
_EQUIVALENT = {"0": "not_equivalent", "1": "equivalent"}

FORMATS: dict[GlueTask, GlueFormat] = {
    "cola": GlueFormat(
        text=3,
        label=1,
        label_names={"0": "unacceptable", "1": "acceptable"},
        has_header=False,
        metrics=("matthews",),
        columns_without_header=4,
    ),
    "sst2": GlueFormat(
        text="sentence", label="label", label_names={"0": "negative", "1": "positive"}
    ),
    "mrpc": GlueFormat(
        text="#1 String",
        text_pair="#2 String",
        label="Quality",
        label_names=_EQUIVALENT,
        metrics=("f1", "accuracy"),
    ),
    "qqp": GlueFormat(
        text="question1",
        text_pair="question2",
        label="is_duplicate",
        label_names={"0": "not_duplicate", "1": "duplicate"},
        metrics=("f1", "accuracy"),
        skips_damaged=True,
    ),
    "mnli": GlueFormat(
        text="sentence1",
        text_pair="sentence2",
        label="gold_label",
        label_names={name: name for name in ("entailment", "neutral", "contradiction")},
        dev="dev_matched.tsv",
    ),
    "qnli": GlueFormat(
        text="question", text_pair="sentence", label="label", label_names=_ENTAILMENT
    ),
    "rte": GlueFormat(
        text="sentence1", text_pair="sentence2", label="label", label_names=_ENTAILMENT
    ),
}


def glue_labels(task: GlueTask) -> tuple[str, ...]:
    """Label names of a task, in the order that its checkpoints use."""
    return tuple(FORMATS[task].label_names.values())


def read_glue(path: Path, task: GlueTask) -> list[LabelledExample]:
    """All rows of one file; as many as it has lines, less the header.

    Raises DataError that names file and line for a missing column, another number of fields, an
    unknown label or an empty text.
    """
    layout = FORMATS[task]
    lines = read_lines(path)
    first = 1 if layout.has_header else 0
    if len(lines) <= first:
        raise DataError(f"{path} holds no rows; give the task's own file")
    position = _positions(path, task, lines[0])
    examples = []
    damaged = []
    for line, content in enumerate(lines[first:], start=first + 1):
        fields = content.split("\t")
        if layout.skips_damaged and _is_damaged(fields, position, layout):
            damaged.append(line)
        else:
            examples.append(_example(path, line, fields, position, layout))
    if damaged:
        logger.warning(
            "%s: left out %d damaged lines of %d, the first is line %d",
            path,
            len(damaged),
            len(lines) - first,
            damaged[0],
        )
    if not examples:
        raise DataError(f"{path} holds no whole row; give the task's own file")
    return examples


def _positions(path: Path, task: GlueTask, header_line: str) -> dict[str | int, int]:
    layout = FORMATS[task]
    header: Sequence[str | int] = (
        header_line.split("\t") if layout.has_header else range(layout.columns_without_header)
    )
    position = {name: index for index, name in enumerate(header)}
    wanted = (layout.text, layout.label, layout.text_pair)
    missing = [name for name in wanted if name is not None and name not in position]
    if missing:
        raise DataError(
            f"{path}: no column {missing[0]!r}; it is not a {task} file (has {list(header)})"
        )
    return position


def _is_damaged(fields: list[str], position: dict[str | int, int], layout: GlueFormat) -> bool:
    if len(fields) < len(position):
        return True
    wanted = (layout.text, layout.text_pair)
    return any(not fields[position[name]].strip() for name in wanted if name is not None)


def _example(
    path: Path,
    line: int,
    fields: list[str],
    position: dict[str | int, int],
    layout: GlueFormat,
) -> LabelledExample:
    if len(fields) != len(position):
        raise DataError(
            f"{path}, line {line}: {len(fields)} fields where there should be {len(position)}"
        )
    said = fields[position[layout.label]]
    label = layout.label_names.get(said)
    if label is None:
        known = ", ".join(layout.label_names)
        raise DataError(
            f"{path}, line {line}: unknown label {said!r} in column {layout.label!r}; known are "
            f"{known}"
        )
    text = _text(path, line, fields, position, layout.text)
    pair = None
    if layout.text_pair is not None:
        pair = _text(path, line, fields, position, layout.text_pair)
    return LabelledExample(text, label, pair, origin=f"{path}, line {line}")


def _text(
    path: Path, line: int, fields: list[str], position: dict[str | int, int], column: str | int
) -> str:
    text = fields[position[column]]
    if not text.strip():
        raise DataError(f"{path}, line {line}: column {column!r} is empty; remove the row")
    return text
