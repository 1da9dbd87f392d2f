"""Steps: done once, redone when what they are made from changes, never half done."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.steps import Step, ensure, fingerprint


def _step(tmp_path: Path, made_from: str, ran: list[str]) -> Step:
    def run() -> None:
        ran.append(made_from)
        (tmp_path / "output").write_text(made_from)

    return Step(name="make", output=tmp_path / "output", fingerprint=made_from, run=run)


def test_a_step_runs_once_until_its_inputs_change(tmp_path: Path) -> None:
    ran: list[str] = []
    for made_from in ("a", "a", "b", "b", "a"):
        ensure(_step(tmp_path, made_from, ran))
        assert (tmp_path / "output").read_text() == made_from
    assert ran == ["a", "b", "a"]


def test_a_step_whose_output_was_removed_runs_again(tmp_path: Path) -> None:
    ran: list[str] = []
    ensure(_step(tmp_path, "a", ran))
    (tmp_path / "output").unlink()
    ensure(_step(tmp_path, "a", ran))
    assert ran == ["a", "a"]


def test_an_interrupted_step_does_not_look_done(tmp_path: Path) -> None:
    ran: list[str] = []
    ensure(_step(tmp_path, "a", ran))

    def interrupted() -> None:
        (tmp_path / "output").write_text("half")
        raise KeyboardInterrupt

    step = Step(name="make", output=tmp_path / "output", fingerprint="b", run=interrupted)
    with pytest.raises(KeyboardInterrupt):
        ensure(step)
    ensure(_step(tmp_path, "a", ran))
    assert (tmp_path / "output").read_text() == "a"


def test_fingerprints_do_not_depend_on_the_order_of_keys() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
