"""Where the label order of a task is decided: listed, fixed by the format, or else sorted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from multi_exit.errors import DataError
from training.data.config import DataConfig
from training.data.example import LabelledExample
from training.data.glue import glue_labels
from training.data.tables import decode


def label_order(config: DataConfig, train: Sequence[LabelledExample]) -> tuple[str, ...]:
    """Label names in the order of the classifier's rows. Raises DataError for a broken list."""
    if isinstance(config.labels, tuple):
        return _distinct(config.labels, "data.labels")
    if isinstance(config.labels, Path):
        return _distinct(_label_file(config.labels), str(config.labels))
    if config.glue is not None:
        return glue_labels(config.glue)
    # Sorted, never by first appearance: the order must not depend on how rows were shuffled.
    return tuple(sorted({example.label for example in train}))


def check_labels(examples: Sequence[LabelledExample], labels: tuple[str, ...]) -> None:
    """Raises DataError that names file and row of a label that the task does not have."""
    known = set(labels)
    for example in examples:
        if example.label not in known:
            raise DataError(
                f"{example.origin}: label {example.label!r} is not one of the "
                f"{len(labels)} labels of the task; correct it, or list it under data.labels"
            )


def _label_file(path: Path) -> tuple[str, ...]:
    text = decode(path)
    if path.suffix.lower() == ".json":
        try:
            names = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(f"{path} is not JSON: {error}") from error
    else:
        names = [line.strip() for line in text.splitlines() if line.strip()]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path}: expected a list of label names")
    return tuple(names)


def _distinct(names: tuple[str, ...], source: str) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{source}: label {twice!r} is listed twice")
    if len(names) < 2:
        raise DataError(f"{source}: a classifier needs two labels; {len(names)} listed")
    return names
