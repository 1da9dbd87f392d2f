"""Configuration files: TOML with overrides, and errors that name file and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from multi_exit.configuration import read_toml, validate
from multi_exit.errors import ConfigurationError


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rate: float = 0.5


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = "x"
    section: _Section = _Section()


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("section.rate=0.25", {"section": {"rate": 0.25}}),
        ("name=plain words", {"name": "plain words"}),
        ('name="3"', {"name": "3"}),
        ("new.deep.key=[1, 2]", {"new": {"deep": {"key": [1, 2]}}}),
    ],
)
def test_overrides_go_on_top_of_the_file(
    tmp_path: Path, override: str, expected: dict[str, object]
) -> None:
    (tmp_path / "file.toml").write_text("")
    assert read_toml(tmp_path / "file.toml", [override]) == expected


@pytest.mark.parametrize("override", ["rate", "=3", ".rate=3", "section..rate=3", "name.rate=1"])
def test_an_override_of_another_form_is_refused(tmp_path: Path, override: str) -> None:
    (tmp_path / "file.toml").write_text('name = "x"')
    with pytest.raises(ConfigurationError, match="override"):
        read_toml(tmp_path / "file.toml", [override])


@pytest.mark.parametrize("content", [b"name = ", b"\xff", b"a = 1\na = 2"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.toml").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"file\.toml"):
        read_toml(tmp_path / "file.toml")


def test_every_wrong_key_is_named_with_its_file() -> None:
    content = {"nmae": "x", "section": {"rate": "fast"}}
    with pytest.raises(ConfigurationError) as refusal:
        validate(_File, content, Path("file.toml"))
    assert all(word in str(refusal.value) for word in ("file.toml", "nmae", "section.rate"))
