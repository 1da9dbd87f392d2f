"""Reads the service's shadow log: what every exit answered for live texts, never the texts.

JSON lines, one a row:
{"bundle": "0123456789ab", "entropies": [0.41, 0.0], "labels": [2, 2], "sampled": 0.01}
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from multi_exit.bundle import Bundle
from multi_exit.errors import DataError
from multi_exit.outcome import ExitAnswers
from training.data.tables import decode


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    bundle: str
    entropies: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(strict=False)
    labels: tuple[Annotated[int, Field(ge=0)], ...] = Field(strict=False)
    sampled: float = Field(gt=0, le=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShadowRows:
    """Rows of one bundle. foreign: rows of other bundles, which are left out. sha256: of the files.

    shares: the shares of live rows that were drawn, in order of first appearance.
    """

    answers: ExitAnswers
    foreign: int
    shares: tuple[float, ...]
    sha256: str


def read_shadow_rows(paths: Sequence[Path], bundle: Bundle) -> ShadowRows:
    """Rows that this very bundle answered, of one or several files in order.

    Raises DataError for a file that cannot be read, a line that is not of the format or does not
    fit the bundle, and where no row is of this bundle.
    """
    digest = hashlib.sha256()
    rows: list[_Line] = []
    others: Counter[str] = Counter()
    for path in paths:
        content = decode(path)
        digest.update(path.read_bytes())
        for where, line in _lines(path, content):
            if line.bundle == bundle.identifier:
                _check(line, bundle, where)
                rows.append(line)
            else:
                others[line.bundle] += 1
    if not rows:
        found = ", ".join(f"{name} ({count:,})" for name, count in others.most_common(3))
        raise DataError(
            f"{', '.join(map(str, paths))}: no row is of bundle {bundle.identifier}; "
            + (f"there are rows of {found}" if found else "there are no rows at all")
        )
    return ShadowRows(
        answers=ExitAnswers(
            np.array([row.labels for row in rows], dtype=np.int64),
            # float32, as the graphs gave them: thresholds are compared with those.
            np.array([row.entropies for row in rows], dtype=np.float32),
        ),
        foreign=others.total(),
        shares=tuple(dict.fromkeys(row.sampled for row in rows)),
        sha256=digest.hexdigest(),
    )


def _lines(path: Path, content: str) -> Iterator[tuple[str, _Line]]:
    lines = content.split("\n")
    # The log may be copied while it is written: what follows the last line feed is no whole line.
    for number, line in enumerate(lines[:-1], start=1):
        if not line.strip():
            continue
        try:
            yield f"{path}, line {number}", _Line.model_validate_json(line)
        except ValidationError as error:
            problem = error.errors(include_input=False, include_url=False)[0]
            field = ".".join(map(str, problem["loc"]))
            raise DataError(
                f"{path}, line {number}: {f'{field}: ' if field else ''}{problem['msg']}; expected "
                "a line of the service's shadow log"
            ) from error


def _check(line: _Line, bundle: Bundle, where: str) -> None:
    exits, labels = len(bundle.manifest.exits), len(bundle.manifest.labels)
    if len(line.entropies) != exits or len(line.labels) != exits:
        raise DataError(
            f"{where}: {len(line.entropies)} entropies where the bundle has {exits} exits"
        )
    if max(line.labels) >= labels:
        raise DataError(f"{where}: label {max(line.labels)} where the bundle has {labels} labels")
