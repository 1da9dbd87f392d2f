"""The history of a run: lines survive kills, and what a resumed run repeats is forgotten."""

from __future__ import annotations

from pathlib import Path

import torch

from training.history import History
from training.losses.joint import ExitTerms, Gate, open_gate
from training.objective import ObjectiveValue

ONE, OPEN = torch.ones(2), open_gate(2, torch.device("cpu"))


def _history(path: Path) -> History:
    history = History(path / "history.jsonl")
    history.forget_after(0)
    return history


def test_a_half_written_line_is_left_out(tmp_path: Path) -> None:
    history = _history(tmp_path)
    history.step(1, ObjectiveValue(torch.tensor(3.0), ExitTerms(ONE), OPEN))
    with history.path.open("a") as file:
        file.write('{"kind": "st')
    assert [line["step"] for line in history.lines()] == [1]
    history.forget_after(1)
    history.epoch(2, 1, "accuracy", (0.5, 0.75))
    assert [line["kind"] for line in history.lines()] == ["step", "epoch"]


def test_what_comes_after_a_state_is_forgotten(tmp_path: Path) -> None:
    history = _history(tmp_path)
    for step in (1, 2, 3):
        history.epoch(step, step, "accuracy", (0.5,))
    history.forget_after(2)
    assert [line["step"] for line in history.lines()] == [1, 2]


def test_scopes_agree_counts_only_what_was_decided(tmp_path: Path) -> None:
    history = _history(tmp_path)
    assert history.scopes_agree() is None
    degrees = torch.tensor([10.0, 100.0])
    one = Gate(torch.tensor([1.0, 0.0]), torch.ones(1), degrees)
    other = Gate(torch.tensor([0.0, 0.0]), torch.ones(1), degrees)
    history.angles(1, one, other)
    assert history.scopes_agree() == 0.5
    (line,) = history.lines()
    assert line["representation"]["teacher_kept"] is None, "there was no teacher's term"
