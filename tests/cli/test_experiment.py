"""`patamar experiment`: trained, compared as a table, drawn; each without the others."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from cli.experiment import add_arguments
from cli.main import main
from tests.cli.missing_package import hide
from tests.conftest import MakeBackbone, toy_rows, write_csv
from tests.training.experiment.grids import write_experiment


@pytest.fixture(scope="module")
def file(make_backbone: MakeBackbone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment of two methods and one seed, of a second each."""
    folder = tmp_path_factory.mktemp("experiment")
    texts = write_csv(folder / "texts.csv", toy_rows(80, seed=5))
    head = 'baseline = "ce"\nseeds = [1]'
    return write_experiment(folder / "grid", texts, make_backbone("bert"), head=head)


@pytest.fixture(scope="module")
def output(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of the whole experiment."""
    folder = tmp_path_factory.mktemp("output") / "out"
    assert main(["experiment", str(file), "--output", str(folder)]) == 0
    return folder


def test_a_table_and_a_report_of_what_is_finished_train_nothing(
    file: Path, output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    arguments = ["experiment", str(file), "--output", str(output), "--table"]
    assert main([*arguments, "--report", str(tmp_path / "report")]) == 0
    printed = capsys.readouterr()
    assert [line.split()[:2] for line in printed.out.splitlines()[1:]] == [
        ["toy", "ce"],
        ["toy", "acl-embed"],
    ]
    assert f"report: {tmp_path / 'report' / 'report.html'}" in printed.err
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "2 trainings of 2 methods on 1 task" in page
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before


def test_a_part_is_trained_drawn_and_gone_on_with(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["experiment", str(file), "--output", str(tmp_path / "out")]
    report = ["--report", str(tmp_path / "report")]
    tracking = tmp_path / "tracking"
    assert main([*arguments, "--cells", "1", "--tracking", str(tracking), *report]) == 0
    (run,) = tracking.iterdir()
    assert run.name.startswith("toy-ce-1-")
    assert list(run.glob("events.*"))
    page = tmp_path / "report" / "report.html"
    assert "1 training of 1 method on 1 task" in page.read_text(encoding="utf-8")
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main([*arguments, "--methods", "acl-embed", *report]) == 0
    assert "2 trainings of 2 methods" in page.read_text(encoding="utf-8")
    assert "(1 pair)" in capsys.readouterr().out


def test_a_cell_that_failed_is_named_and_the_status_says_so(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = file.with_name("broken.toml")
    content = file.read_text().replace('"objective.method=acl-embed"', '"model.layers=9"')
    broken.write_text(content)
    assert main(["experiment", str(broken), "--output", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr()
    assert "failed: toy, acl-embed, seed 1" in printed.err
    assert len(printed.out.splitlines()) == 2, "the other cell is in the table"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--table"], "holds no finished cell"),
        (["--cells", "0"], "--cells must be at least 1"),
        (["--table", "--tasks", "toy"], "--table trains nothing"),
        (["--table", "--tracking", "x"], "--table trains nothing"),
        (["--tasks", "cola"], "'cola' is not one of toy"),
        (["--methods", "acl"], "'acl' is not one of ce, acl-embed"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    options: list[str], says: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", str(file), "--output", str(tmp_path / "out"), *options]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_missing_matplotlib_is_told_before_anything_is_trained(
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hide(monkeypatch, "matplotlib", users="training.report")
    arguments = ["experiment", str(file), "--output", str(tmp_path / "out"), "--report", "x"]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "the package 'matplotlib' is missing; install `patamar[train]`" in error
    assert not (tmp_path / "out").exists()


def test_a_missing_tensorboard_is_told_before_anything_is_trained(
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hide(monkeypatch, "tensorboardX", users="training.experiment.tracking")
    arguments = ["experiment", str(file), "--output", str(tmp_path / "out"), "--tracking", "x"]
    assert main(arguments) == 2
    assert "install `patamar[tracking]`" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_every_option_is_in_the_documentation() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    section = page.split("## Experiments:")[1]
    for option in parser._option_string_actions:
        assert option in section, option
