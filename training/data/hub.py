"""Reads a data set by its name, through the `datasets` library."""

from __future__ import annotations

from typing import Any

from multi_exit.errors import DataError
from training.data.config import DataConfig
from training.data.example import LabelledExample


def read_dataset(config: DataConfig, split: str) -> list[LabelledExample]:
    """One split of a named data set; class numbers become their names.

    Raises DataError where the library cannot load it, or a column is missing or empty.
    """
    import datasets

    assert config.dataset is not None, "only called for a named data set"
    try:
        table = datasets.load_dataset(config.dataset, config.dataset_configuration, split=split)
    except Exception as error:
        # The library raises errors of many unrelated kinds for what cannot be had.
        raise DataError(
            f"cannot load split {split!r} of data set {config.dataset!r}: {error}"
        ) from error
    columns = [config.text_column, config.label_column]
    if config.text_pair_column is not None:
        columns.append(config.text_pair_column)
    for column in columns:
        if column not in table.column_names:
            raise DataError(
                f"data set {config.dataset!r} has no column {column!r}; it has {table.column_names}"
            )
    names = getattr(table.features[config.label_column], "names", None)
    return [_example(config, row, values, names) for row, values in enumerate(table, start=1)]


def _example(
    config: DataConfig, row: int, values: dict[str, Any], names: list[str] | None
) -> LabelledExample:
    label = values[config.label_column]
    text = values[config.text_column]
    pair = None if config.text_pair_column is None else values[config.text_pair_column]
    if label is None or not text or (config.text_pair_column is not None and not pair):
        raise DataError(f"data set {config.dataset!r}, row {row}: a text or label is empty")
    return LabelledExample(str(text), names[label] if names is not None else str(label), pair)
