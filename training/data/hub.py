"""Reads a data set by its name, through the `datasets` library."""

from __future__ import annotations

from typing import Any

from multi_exit.errors import DataError
from training.data.config import DataConfig
from training.data.example import LabelledExample


def read_dataset(config: DataConfig, split: str) -> list[LabelledExample]:
    """One split of a named data set; class numbers become their names.

    Raises DataError where the library cannot load it, a column is missing, or a row has no text
    or no label.
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
    where = f"data set {config.dataset!r}, split {split!r}"
    for column in columns:
        if column not in table.column_names:
            raise DataError(f"{where}: no column {column!r}; it has {table.column_names}")
    names = getattr(table.features[config.label_column], "names", None)
    rows = table.select_columns(columns)
    examples = [
        _example(config, f"{where}, row {row}", values, names)
        for row, values in enumerate(rows, start=1)
    ]
    if not examples:
        raise DataError(f"{where} holds no rows")
    return examples


def _example(
    config: DataConfig, origin: str, values: dict[str, Any], names: list[str] | None
) -> LabelledExample:
    text = _text(origin, values, config.text_column)
    pair = None
    if config.text_pair_column is not None:
        pair = _text(origin, values, config.text_pair_column)
    label = values[config.label_column]
    # Data sets whose labels are hidden say -1, which would be the last name.
    if label is None or label == "" or (names is not None and not 0 <= label < len(names)):
        raise DataError(
            f"{origin}: column {config.label_column!r} holds no label ({label!r}); use a split "
            "whose labels are public"
        )
    return LabelledExample(text, names[label] if names else str(label), pair, origin=origin)


def _text(origin: str, values: dict[str, Any], column: str) -> str:
    text = values[column]
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{origin}: column {column!r} holds no text; remove the row")
    return text
