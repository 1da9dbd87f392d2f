"""Steps that are done once, and again only when what they were made from changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step. fingerprint: of everything that `output` depends on; run: makes `output` whole."""

    name: str
    output: Path
    fingerprint: str
    run: Callable[[], None]

    @property
    def stamp(self) -> Path:
        return self.output.with_name(f"{self.output.name}.made-from")


def fingerprint(*parts: Any) -> str:
    """Digest of plain data (JSON types), the same on every machine."""
    content = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(content.encode()).hexdigest()


def is_done(step: Step) -> bool:
    """Whether the output is there and was made from the same things."""
    try:
        return step.output.exists() and step.stamp.read_text() == step.fingerprint
    except OSError:
        return False


def ensure(step: Step) -> bool:
    """Runs the step unless it is done. Returns whether it ran."""
    if is_done(step):
        print(f"{step.name}: done already, {step.output}")
        return False
    print(f"{step.name} …")
    # Unstamped first: a step that is cut short must not look done from an earlier run.
    step.stamp.unlink(missing_ok=True)
    step.run()
    step.stamp.write_text(step.fingerprint)
    return True
