"""`patamar evaluate`: scores as a table or JSON, and a drawn report beside either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.main import main
from multi_exit.bundle import Bundle
from tests.cli.missing_package import hide
from training.checkpoint import load_manifest


def test_json_stays_json_beside_a_report(
    toy_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["evaluate", str(toy_checkpoint), "--split", "validation", "--json"]
    assert main(arguments) == 0
    plain = json.loads(capsys.readouterr().out)
    manifest = load_manifest(toy_checkpoint)
    assert plain["scores"]["accuracy"] == pytest.approx(manifest.scores_by_exit)

    report = tmp_path / "report"
    assert main([*arguments, "--report", str(report), "--map-layer", "1"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == plain, "the drawn report shows the same scores"
    assert f"report: {report / 'report.html'}" in printed.err
    page = (report / "report.html").read_text(encoding="utf-8")
    assert "Representations at exit 1" in page
    assert "of the validation split" in page
    assert (report / "representation_map.png").exists()


def test_the_table_is_printed_without_json(
    toy_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(toy_checkpoint), "--split", "validation"]) == 0
    assert capsys.readouterr().out.startswith("exit layer")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--map-layer", "2"], "name its folder with --report"),
        (["--report", "OUT", "--map-layer", "9"], "layer 9 has no exit"),
    ],
)
def test_a_map_that_cannot_be_drawn_is_refused(
    options: list[str],
    says: str,
    toy_checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = [str(tmp_path / "out") if option == "OUT" else option for option in options]
    assert main(["evaluate", str(toy_checkpoint), *options]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_report_of_a_bundle_names_what_to_draw(
    toy_bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(toy_bundle.path), "--report", str(tmp_path / "out")]) == 2
    assert "name the bundle's checkpoint in its place" in capsys.readouterr().err


def test_a_missing_matplotlib_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide(monkeypatch, "matplotlib", users="training.report")
    assert main(["evaluate", "/nowhere", "--report", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "the package 'matplotlib' is missing; install `patamar[train]`" in error
    assert main(["evaluate", "/nowhere"]) == 2
    assert "not a checkpoint" in capsys.readouterr().err, "scores need no matplotlib"
