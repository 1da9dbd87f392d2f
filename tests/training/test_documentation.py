"""docs/training.md lists every setting, with its true default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from training.config import ModelConfig, ObjectiveConfig, OptimiserConfig, RunConfig
from training.data import DataConfig

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
SECTIONS: dict[str, type[BaseModel]] = {
    "data": DataConfig,
    "model": ModelConfig,
    "objective": ObjectiveConfig,
    "optimiser": OptimiserConfig,
    "run": RunConfig,
}


def _rows(section: str) -> dict[str, str]:
    """Default by key, as the section's table says."""
    text = PAGE.read_text(encoding="utf-8").split(f"### [{section}]")[1]
    table = re.split(r"^##+ ", text, maxsplit=1, flags=re.MULTILINE)[0]
    rows: dict[str, str] = {}
    for line in table.splitlines():
        if not line.startswith("| `"):
            continue
        keys, defaults = line.split("|")[1:3]
        names = re.findall(r"`(\w+)`", keys)
        values = defaults.split(",") if len(names) > 1 else [defaults]
        rows |= {name: value.strip(" `") for name, value in zip(names, values, strict=True)}
    return rows


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_listed(section: str) -> None:
    assert _rows(section).keys() == SECTIONS[section].model_fields.keys()


@pytest.mark.parametrize("section", SECTIONS)
def test_defaults_are_the_true_ones(section: str) -> None:
    for name, written in _rows(section).items():
        default = SECTIONS[section].model_fields[name].default
        if isinstance(default, int | float):
            assert float(written) == default, name
        elif isinstance(default, str):
            assert written == default, name
        else:
            # Required, or absent: words, never a number.
            assert not re.match(r"\d", written), name
