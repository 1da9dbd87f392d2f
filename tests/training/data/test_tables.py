"""Tables of labelled texts in each format, and errors that name file, row and column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from multi_exit.errors import DataError
from training.data.tables import read_table, read_texts

ROWS = [
    {"text": 'say "hi", twice', "label": "b"},
    {"text": "two\nlines", "label": "a"},
    {"text": "ünïcode ☕", "label": "b"},
]


def _read(path: Path, pair: str | None = None) -> list[tuple[str, str, str | None]]:
    found = read_table(path, text_column="text", label_column="label", text_pair_column=pair)
    return [(example.text, example.label, example.text_pair) for example in found]


def _write(path: Path, content: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(content.encode(encoding))
    return path


def test_csv_keeps_quotes_commas_and_line_breaks(tmp_path: Path) -> None:
    content = 'text,label\r\n"say ""hi"", twice",b\r\n"two\nlines",a\r\nünïcode ☕,b\r\n'
    path = _write(tmp_path / "texts.csv", content)
    assert [text for text, _, _ in _read(path)] == [row["text"] for row in ROWS]
    assert [label for _, label, _ in _read(path)] == ["b", "a", "b"]


def test_a_byte_order_mark_is_not_part_of_the_first_column(tmp_path: Path) -> None:
    path = _write(tmp_path / "texts.csv", "text,label\nhello,a\n", "utf-8-sig")
    assert _read(path) == [("hello", "a", None)]


def test_tsv_is_not_quoted(tmp_path: Path) -> None:
    content = 'text\tlabel\n"an open quote\ta\nnext "row"\tb\nform\x0cfeed\ta\n'
    path = _write(tmp_path / "texts.tsv", content)
    assert [text for text, _, _ in _read(path)] == ['"an open quote', 'next "row"', "form\x0cfeed"]


def test_jsonl_and_parquet_give_the_same_as_csv(tmp_path: Path) -> None:
    lines = "\n\n".join(json.dumps(row) for row in ROWS)
    parquet = tmp_path / "texts.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), parquet)
    expected = [(row["text"], row["label"], None) for row in ROWS]
    assert _read(_write(tmp_path / "texts.jsonl", lines)) == expected
    assert _read(parquet) == expected


def test_whole_numbers_are_label_names(tmp_path: Path) -> None:
    path = _write(tmp_path / "texts.jsonl", '{"text": "x", "label": 3}\n')
    assert _read(path) == [("x", "3", None)]


def test_pairs_have_a_second_column(tmp_path: Path) -> None:
    path = _write(tmp_path / "texts.csv", "text,other,label\na,b,c\n")
    assert _read(path, pair="other") == [("a", "c", "b")]


def test_every_text_knows_its_row(tmp_path: Path) -> None:
    path = _write(tmp_path / "texts.csv", "text,label\na,x\nb,y\n")
    found = read_table(path, text_column="text", label_column="label", text_pair_column=None)
    assert [example.origin for example in found] == [f"{path}, row 1", f"{path}, row 2"]


def test_one_column_is_enough_for_texts_alone(tmp_path: Path) -> None:
    path = _write(tmp_path / "texts.csv", "words\na\nb\n")
    assert read_texts(path, "words") == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", "", r"a\.csv holds no rows"),
        ("a.csv", "text,label\n", r"a\.csv holds no rows"),
        ("a.tsv", "", r"a\.tsv holds no rows"),
        ("a.jsonl", "\n\n", r"a\.jsonl holds no rows"),
        ("a.csv", "txt,label\nx,y\n", r"a\.csv, row 1: no column 'text'; it has 'txt', 'label'"),
        ("a.csv", "text,label\nx,y\nz,\n", r"a\.csv, row 2: column 'label' is empty"),
        ("a.csv", "text,label\nx,y\n  ,y\n", r"a\.csv, row 2: column 'text' is empty"),
        ("a.csv", "text,label\nx,y\nz\n", r"a\.csv, row 2 \(line 3\): fewer fields than the 2"),
        ("a.csv", "text,label\nx,y,z\n", r"a\.csv, row 1 \(line 2\): more fields than the 2"),
        ("a.csv", "text,label,text\nx,y,z\n", r"two columns are named 'text'"),
        ("a.csv", 'text,label\n"open,y\nz,y\n', r"a\.csv, row 1: unexpected end of data"),
        ("a.tsv", "text\tlabel\nx\ty\tz\n", r"a\.tsv, row 1 \(line 2\): more fields"),
        ("a.jsonl", '{"text": "x", "label": "y"}\n{"text"', r"a\.jsonl, row 2: not JSON"),
        ("a.jsonl", '["x", "y"]', r"a\.jsonl, row 1: expected an object"),
        ("a.jsonl", '{"text": 5, "label": "y"}', r"row 1: column 'text' holds int, not text"),
        ("a.jsonl", '{"text": "x", "label": [1]}', r"row 1: column 'label' holds list"),
        ("a.jsonl", '{"text": null, "label": "y"}', r"row 1: column 'text' is empty"),
        ("a.jsonl", "[" * 100_000, r"row 1: not JSON \(maximum recursion"),
        ("a.jsonl", '{"text": "x", "label": ' + "1" * 5000 + "}", r"row 1: not JSON \(Exceeds"),
        ("a.tsv", "text\tlabel\nx\ry\tz\n", r"a\.tsv, row 1: new-line character"),
        ("a.parquet", "not parquet", r"cannot read .*a\.parquet"),
        ("a.xlsx", "x", r"a\.xlsx: unknown format; use one of \.csv, \.jsonl, \.parquet, \.tsv"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, content: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        _read(_write(tmp_path / name, content))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_broken_encoding_is_named_by_line(tmp_path: Path, name: str) -> None:
    path = _write(tmp_path / name, "text,label\nx,y\ncafé,y\n", "latin-1")
    with pytest.raises(DataError, match=rf"{name}, line 3: not UTF-8 .*; convert the file"):
        _read(path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=rf"cannot read .*{name}"):
        _read(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=name):
        _read(tmp_path / name)


def test_parquet_rows_without_text_are_named(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": "x", "label": "y"}, {"text": None, "label": "y"}]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    with pytest.raises(DataError, match=r"a\.parquet, row 2: column 'text' is empty"):
        _read(path)
