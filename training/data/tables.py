"""Reads CSV, TSV, JSONL and Parquet files of labelled texts, with errors that name file and row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from multi_exit.errors import DataError
from training.data.example import LabelledExample

# A row and where it stands, for error messages: the first data row is row 1.
Row = tuple[int, dict[str, Any]]


def read_table(
    path: Path, *, text_column: str, label_column: str, text_pair_column: str | None
) -> list[LabelledExample]:
    """All rows of one file, its format by its ending.

    Raises DataError for a file that cannot be read, is empty or badly encoded, lacks a column, or
    has a row without text or label.
    """
    examples = []
    for row, values in _rows(path):
        pair = None
        if text_pair_column is not None:
            pair = _field(path, row, values, text_pair_column)
        text = _field(path, row, values, text_column)
        label = _field(path, row, values, label_column)
        examples.append(LabelledExample(text, label, pair))
    if not examples:
        raise DataError(f"{path} holds no rows; give a file with at least one labelled text")
    return examples


def read_texts(path: Path, text_column: str = "text") -> list[str]:
    """One column of a file, for benchmarks and unlabelled texts. Raises DataError."""
    return [_field(path, row, values, text_column) for row, values in _rows(path)]


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, without a byte-order mark. Raises DataError.

    Only line feeds end a line: str.splitlines would also cut at form feeds inside a text.
    """
    lines = decode(path).replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines and lines[-1] == "" else lines


def decode(path: Path) -> str:
    """The text of a UTF-8 file. Raises DataError that names file and line of a broken byte."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: not UTF-8 ({error.reason}); convert the file to UTF-8"
        ) from error


def _rows(path: Path) -> Iterator[Row]:
    readers: dict[str, Callable[[Path], Iterator[Row]]] = {
        ".csv": _csv_rows,
        ".tsv": _tsv_rows,
        ".jsonl": _jsonl_rows,
        ".parquet": _parquet_rows,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: unknown format; use one of {', '.join(sorted(readers))}")
    return reader(path)


def _csv_rows(path: Path) -> Iterator[Row]:
    yield from _separated_rows(path, csv.DictReader(io.StringIO(decode(path), newline="")))


def _tsv_rows(path: Path) -> Iterator[Row]:
    # Tab-separated files are not quoted: with quoting on, a lone quotation mark eats rows.
    text = io.StringIO("\n".join(read_lines(path)) + "\n", newline="")
    yield from _separated_rows(path, csv.DictReader(text, delimiter="\t", quoting=csv.QUOTE_NONE))


def _separated_rows(path: Path, reader: csv.DictReader[str]) -> Iterator[Row]:
    try:
        for row, values in enumerate(reader, start=1):
            if None in values:
                raise DataError(f"{path}, row {row}: more fields than the header names")
            yield row, values
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from error


def _jsonl_rows(path: Path) -> Iterator[Row]:
    for row, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, row {row}: not JSON ({error.msg})") from error
        if not isinstance(values, dict):
            raise DataError(f"{path}, row {row}: expected an object with named fields")
        yield row, values


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    yield from enumerate(table.to_pylist(), start=1)


def _field(path: Path, row: int, values: dict[str, Any], column: str) -> str:
    if column not in values:
        found = ", ".join(repr(name) for name in values)
        raise DataError(f"{path}, row {row}: no column {column!r}; it has {found}")
    value = values[column]
    if value is None or (isinstance(value, str) and not value.strip()):
        raise DataError(f"{path}, row {row}: column {column!r} is empty; fill or remove the row")
    return value if isinstance(value, str) else str(value)
