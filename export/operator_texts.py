"""Reads the operator's own texts, labelled or not, for a calibration without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from multi_exit.bundle import file_digest
from multi_exit.errors import DataError
from training.data.example import LabelledExample
from training.data.tables import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTexts:
    """Texts of one file, each once. labelled: whether their labels mean anything.

    sha256: of the file. dropped: rows that repeated an earlier text. contradicted: those among
    them that gave it another label.
    """

    examples: tuple[LabelledExample, ...]
    labelled: bool
    sha256: str
    dropped: int
    contradicted: int


def read_operator_texts(
    path: Path, *, text_column: str, pair_column: str | None, label_column: str | None
) -> OperatorTexts:
    """Reads CSV, TSV or JSONL (Parquet where pyarrow is installed), its format by its ending.

    Equal texts are kept once, the first of them: a repeated text would be counted as evidence as
    often as it is repeated. Raises DataError for a file that cannot be read or is empty, a column
    that is not there, and a row without text or label.
    """
    try:
        rows = read_table(
            path,
            text_column=text_column,
            # Every row needs a label there; where none is wanted, the text itself will do.
            label_column=text_column if label_column is None else label_column,
            text_pair_column=pair_column,
        )
        sha256 = file_digest(path)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{path}: this format needs the package {error.name!r}, which is not installed; "
            "convert the file to CSV, TSV or JSONL"
        ) from error
    kept = _once(rows)
    labels = {example.text_input: example.label for example in kept}
    return OperatorTexts(
        examples=kept,
        labelled=label_column is not None,
        sha256=sha256,
        dropped=len(rows) - len(kept),
        contradicted=sum(labels[row.text_input] != row.label for row in rows),
    )


def _once(rows: Sequence[LabelledExample]) -> tuple[LabelledExample, ...]:
    found: dict[object, LabelledExample] = {}
    for row in rows:
        found.setdefault(row.text_input, row)
    return tuple(found.values())
