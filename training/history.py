"""What happened during a run, one JSON object a line: losses, epochs' scores, gradient angles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from training.losses.joint import Gate
from training.objective import ObjectiveValue

HISTORY_FILE = "history.jsonl"


@dataclass(frozen=True, slots=True)
class History:
    """A file that lines are added to. Every line has `kind` and `step` (mini-batches done).

    step: total and terms of one mini-batch by exit. epoch: validation scores by exit. angles:
    degrees between the gradients of cross-entropy and of the contrastive and the teacher's term,
    by exit, in either scope, and whether each would be kept. read_only: another process writes it.
    """

    path: Path
    read_only: bool = False

    def step(self, step: int, value: ObjectiveValue) -> None:
        terms = value.terms
        self._add(
            "step",
            step,
            total=float(value.total.detach()),
            cross_entropy=_numbers(terms.cross_entropy),
            contrastive=_numbers(terms.contrastive),
            teacher=_numbers(terms.teacher),
        )

    def epoch(self, step: int, epoch: int, metric: str, scores: Sequence[float]) -> None:
        self._add("epoch", step, epoch=epoch, metric=metric, scores_by_exit=list(scores))

    def angles(self, step: int, representation: Gate, parameters: Gate) -> None:
        self._add(
            "angles", step, representation=_gate(representation), parameters=_gate(parameters)
        )

    def lines(self) -> Iterator[dict[str, Any]]:
        """All whole lines; the one that a killed run was writing is left out."""
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines(keepends=True):
                if line.endswith("\n"):
                    yield json.loads(line)

    def forget_after(self, step: int) -> None:
        """Drops what an interrupted run wrote beyond the state that it resumes from."""
        if self.read_only:
            return
        kept = [json.dumps(line) + "\n" for line in self.lines() if line["step"] <= step]
        scratch = self.path.with_name(f"{self.path.name}.writing")
        scratch.write_text("".join(kept), encoding="utf-8")
        scratch.replace(self.path)

    def scopes_agree(self) -> float | None:
        """Share of measured decisions (step, exit, term) that both scopes take alike."""
        alike = [
            one == other
            for line in self.lines()
            if line["kind"] == "angles"
            for term in ("contrastive_kept", "teacher_kept")
            for one, other in zip(
                line["representation"][term] or (), line["parameters"][term] or (), strict=True
            )
        ]
        return sum(alike) / len(alike) if alike else None

    def _add(self, kind: str, step: int, **content: Any) -> None:
        if self.read_only:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **content}) + "\n")


def _gate(gate: Gate) -> dict[str, list[float] | None]:
    return {
        "contrastive_degrees": _numbers(gate.contrastive_degrees),
        "contrastive_kept": _decided(gate.contrastive, gate.contrastive_degrees),
        "teacher_degrees": _numbers(gate.teacher_degrees),
        "teacher_kept": _decided(gate.teacher, gate.teacher_degrees),
    }


def _decided(kept: Tensor, degrees: Tensor | None) -> list[float] | None:
    """None where the method has no such term, so that nothing was decided."""
    return None if degrees is None else _numbers(kept)


def _numbers(values: Tensor | None) -> list[float] | None:
    return None if values is None else values.detach().double().tolist()
