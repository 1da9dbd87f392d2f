"""Tables of the numbers behind pictures, and how they are written as CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of equal length under named columns. None where there is no number.

    Raises ValueError for a row of another length.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{len(row)} values under {len(self.columns)} columns: {row}")

    def to_csv(self) -> str:
        """Comma-separated with a header; floats with all their digits, None as nothing."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


def to_json(tables: Mapping[str, Table]) -> str:
    """All tables as one JSON object: name to a list of {column: value}."""
    content = {
        name: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        for name, table in tables.items()
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
