"""docs/export.md lists every key of an export configuration, with its true default."""

from __future__ import annotations

import json
import re
from pathlib import Path

from export.config import ExportConfig

PAGE = Path(__file__).parents[2] / "docs" / "export.md"


def _rows() -> dict[str, str]:
    """Default by key, as the table says."""
    table = PAGE.read_text(encoding="utf-8").split("| key of `export.toml` |")[1].split("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE))


def test_every_key_is_listed() -> None:
    assert _rows().keys() == ExportConfig.model_fields.keys()


def test_defaults_are_the_true_ones() -> None:
    defaults = ExportConfig().model_dump(mode="json")
    for name, written in _rows().items():
        if defaults[name] is None:
            assert "`" not in written, name
        else:
            assert json.loads(written.strip("`")) == defaults[name], name
