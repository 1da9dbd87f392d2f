"""A package that looks as if it were not installed."""

from __future__ import annotations

import sys

import pytest


def hide(monkeypatch: pytest.MonkeyPatch, package: str, *, users: str) -> None:
    """Makes imports of `package` fail, also where `users`, our own packages, imported it before."""
    for name in list(sys.modules):
        if name == users or name.startswith(f"{users}."):
            monkeypatch.delitem(sys.modules, name)
        if name.startswith(f"{package}."):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
