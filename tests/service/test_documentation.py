"""docs/api.md lists every setting, with its true default."""

from __future__ import annotations

from pathlib import Path

from service.settings import Settings


def test_every_setting_is_documented_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    for name, field in Settings.model_fields.items():
        default = "none" if field.default is None else f"`{field.default}`"
        shown = "required" if field.is_required() else default
        assert f"| `PATAMAR_{name.upper()}` | {shown} |" in page, name
