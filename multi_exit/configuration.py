"""Reads configuration files: TOML to a pydantic model, with errors that name file and key."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from multi_exit.errors import ConfigurationError

Model = TypeVar("Model", bound=BaseModel)


def read_toml(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Content of a TOML file, with `section.key=value` overrides on top (value in TOML).

    A value that is not TOML is taken as text, so that `objective.method=ce` needs no quotes.
    Raises ConfigurationError for a file that cannot be read, or an override of another form.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    for override in overrides:
        _apply(content, override)
    return content


def validate(model: type[Model], content: dict[str, Any], path: Path) -> Model:
    """The model of a file's content. Raises ConfigurationError that names every wrong key."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'the file'}: {problem['msg']}"
            for problem in error.errors()
        )
        raise ConfigurationError(f"{path}: {problems}") from error


def _apply(content: dict[str, Any], override: str) -> None:
    name, equals, value = override.partition("=")
    *sections, key = name.strip().split(".")
    if not equals or not key or not all(sections):
        raise ConfigurationError(
            f"override {override!r} is not of the form section.key=value, such as run.seed=3"
        )
    for section in sections:
        content = content.setdefault(section, {})
        if not isinstance(content, dict):
            raise ConfigurationError(f"override {override!r}: {section} is not a section")
    try:
        content[key] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        content[key] = value.strip()
