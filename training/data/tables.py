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
            pair = _text(path, row, values, text_pair_column)
        text = _text(path, row, values, text_column)
        label = _label(path, row, values, label_column)
        examples.append(LabelledExample(text, label, pair, origin=f"{path}, row {row}"))
    if not examples:
        raise DataError(f"{path} holds no rows; give a file with at least one labelled text")
    return examples


def read_texts(path: Path, text_column: str = "text") -> list[str]:
    """One column of a file, for benchmarks and unlabelled texts. Raises DataError."""
    return [_text(path, row, values, text_column) for row, values in _rows(path)]


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
    # strict: a quotation mark that is never closed would eat the rest of the file in silence.
    text = io.StringIO(decode(path), newline="")
    yield from _separated_rows(path, csv.DictReader(text, strict=True))


def _tsv_rows(path: Path) -> Iterator[Row]:
    # Tab-separated files are not quoted: with quoting on, a lone quotation mark eats rows.
    reader = csv.DictReader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    yield from _separated_rows(path, reader)


def _separated_rows(path: Path, reader: csv.DictReader[str]) -> Iterator[Row]:
    row = 0
    try:
        header = list(reader.fieldnames or ())
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise DataError(f"{path}: two columns are named {twice[0]!r}; rename one")
        for row, values in enumerate(reader, start=1):
            # DictReader files surplus fields under None, and fills missing ones with None.
            if None in values or None in values.values():
                kind = "more" if None in values else "fewer"
                raise DataError(
                    f"{path}, row {row} (line {reader.line_num}): {kind} fields than the "
                    f"{len(header)} of the header"
                )
            yield row, values
    except csv.Error as error:
        # The reader may be far beyond where a quotation mark was opened; the row is where.
        raise DataError(f"{path}, row {row + 1}: {error}") from error


def _jsonl_rows(path: Path) -> Iterator[Row]:
    for row, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            # Beside bad syntax: numbers and nesting that Python itself refuses.
            reason = getattr(error, "msg", error)
            raise DataError(f"{path}, row {row}: not JSON ({reason})") from error
        if not isinstance(values, dict):
            raise DataError(f"{path}, row {row}: expected an object with named fields")
        yield row, values


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    yield from enumerate(rows, start=1)


def _field(path: Path, row: int, values: dict[str, Any], column: str) -> Any:
    if column not in values:
        found = ", ".join(repr(name) for name in values)
        raise DataError(f"{path}, row {row}: no column {column!r}; it has {found}")
    value = values[column]
    if value is None or (isinstance(value, str) and not value.strip()):
        raise DataError(f"{path}, row {row}: column {column!r} is empty; fill or remove the row")
    return value


def _text(path: Path, row: int, values: dict[str, Any], column: str) -> str:
    value = _field(path, row, values, column)
    if not isinstance(value, str):
        kind = type(value).__name__
        raise DataError(f"{path}, row {row}: column {column!r} holds {kind}, not text")
    return value


def _label(path: Path, row: int, values: dict[str, Any], column: str) -> str:
    value = _field(path, row, values, column)
    if not isinstance(value, str | int):
        kind = type(value).__name__
        raise DataError(
            f"{path}, row {row}: column {column!r} holds {kind}; a label is a name or whole number"
        )
    return str(value)
