"""Running an experiment for real: resumed, limited, and going on after a cell that fails."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from multi_exit.errors import ConfigurationError, DataError
from tests.training.experiment.grids import make_experiment
from training.checkpoint import load_manifest
from training.evaluate import evaluate_checkpoint
from training.experiment.cell import Cell, add_cell, configuration_digest, read_cells
from training.experiment.config import ExperimentConfig, planned_cells
from training.experiment.finished import CELLS_FILE, finished_cells
from training.experiment.run import run_experiment

ONE_SEED = 'baseline = "ce"\nseeds = [1]'
Output = tuple[ExperimentConfig, Path, tuple[Cell, ...]]


@pytest.fixture(scope="module")
def finished(few_texts: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Output:
    """An experiment of two methods and one seed, its output folder, and its cells."""
    folder = tmp_path_factory.mktemp("grid")
    experiment = make_experiment(folder, few_texts, tiny_bert, head=ONE_SEED)
    result = run_experiment(experiment, folder / "out")
    assert result.failures == ()
    return experiment, folder / "out", result.cells


def copy_of(output: Path, target: Path) -> Path:
    target.mkdir()
    (target / CELLS_FILE).write_bytes((output / CELLS_FILE).read_bytes())
    return target


def test_every_cell_is_trained_scored_and_kept(finished: Output) -> None:
    _, output, cells = finished
    assert [(cell.method, cell.seed) for cell in cells] == [("ce", 1), ("acl-embed", 1)]
    assert read_cells(output / CELLS_FILE) == cells
    for cell in cells:
        assert (cell.task, cell.split, cell.samples, cell.exits) == ("toy", "test", 24, (1, 2, 3))
        assert cell.configuration["run"]["seed"] == 1
        assert cell.steps > 0
        assert set(cell.exit_rules) >= {"entropy", "patience"}
    assert cells[0].score_by_exit != cells[1].score_by_exit
    assert list((output / "checkpoints").iterdir()) == [], "checkpoints are not kept unless asked"


def test_a_finished_cell_is_not_run_again(
    finished: Output, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    experiment, output, cells = finished
    target = copy_of(output, tmp_path / "out")
    with caplog.at_level(logging.INFO, "training"):
        assert run_experiment(experiment, target).cells == cells
    assert caplog.messages == []
    assert not (target / "checkpoints").exists()


def test_after_a_cut_line_only_that_cell_runs_again(finished: Output, tmp_path: Path) -> None:
    experiment, output, cells = finished
    target = copy_of(output, tmp_path / "out")
    content = (target / CELLS_FILE).read_bytes()
    (target / CELLS_FILE).write_bytes(content[:-40])
    again = run_experiment(experiment, target).cells
    assert again[0] == cells[0]
    # On one machine the same configuration gives the same scores; only the clock differs.
    assert again[1].model_copy(update={"training_seconds": 0.0}) == cells[1].model_copy(
        update={"training_seconds": 0.0}
    )
    assert read_cells(target / CELLS_FILE) == again


def test_a_cell_that_fails_does_not_stop_the_rest(
    few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    methods = """
    [methods]
    broken = { set = ["model.layers=9"] }
    ce = { set = ["objective.method=ce"] }
    """
    experiment = make_experiment(tmp_path, few_texts, tiny_bert, head=ONE_SEED, methods=methods)
    result = run_experiment(experiment, tmp_path / "out")
    assert [cell.method for cell in result.cells] == ["ce"]
    (failure,) = result.failures
    assert failure.startswith("toy, broken, seed 1")
    assert "9" in failure


def test_limits_choose_what_is_trained_and_checkpoints_are_kept(
    few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    head = 'baseline = "ce"\nseeds = [1, 2]\nkeep_checkpoints = true\nsplit = "validation"'
    experiment = make_experiment(tmp_path, few_texts, tiny_bert, head=head, tasks=("a", "b"))
    output = tmp_path / "out"
    result = run_experiment(experiment, output, tasks=["b"], methods=["ce"], most_cells=1)
    assert [(c.task, c.method, c.seed, c.split) for c in result.cells] == [
        ("b", "ce", 1, "validation")
    ]
    (checkpoint,) = (output / "checkpoints").iterdir()
    assert json.loads((checkpoint / "checkpoint.json").read_text())["exits"] == [1, 2, 3]
    assert checkpoint.name.startswith("b-ce-1-")
    (cell,) = result.cells
    report = evaluate_checkpoint(checkpoint, "validation")
    manifest = load_manifest(checkpoint)
    assert cell.score_by_exit == pytest.approx(report.scores_by_exit, abs=1e-6)
    assert cell.quality_speed[0] == (3.0, pytest.approx(report.scores_by_exit[-1], abs=1e-6))
    assert (cell.samples, cell.metric, cell.steps) == (report.samples, "accuracy", manifest.steps)
    assert cell.configuration_sha256 == configuration_digest(manifest.configuration)
    assert cell.data_sha256 == manifest.data_sha256


def test_unknown_names_are_refused_before_anything_is_trained(
    finished: Output, tmp_path: Path
) -> None:
    experiment, *_ = finished
    with pytest.raises(ConfigurationError, match="'cola' is not one of toy"):
        run_experiment(experiment, tmp_path / "out", tasks=["toy", "cola"])
    with pytest.raises(ConfigurationError, match="'acl' is not one of ce, acl-embed"):
        run_experiment(experiment, tmp_path / "out", methods=["acl"])
    assert not (tmp_path / "out").exists()


def test_cells_of_an_earlier_form_of_the_experiment_are_left_out(
    finished: Output, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    experiment, output, cells = finished
    target = copy_of(output, tmp_path / "out")
    stale = {"configuration_sha256": "0" * 64}
    add_cell(target / CELLS_FILE, cells[0].model_copy(update=stale))
    add_cell(target / CELLS_FILE, cells[0].model_copy(update={"split": "validation"}))
    assert finished_cells(experiment, target) == cells
    assert "2 of 4 cells" in caplog.text
    assert finished_cells(experiment, tmp_path / "nowhere") == ()
    (target / CELLS_FILE).write_text("{}\n")
    with pytest.raises(DataError, match="line 1"):
        finished_cells(experiment, target)


def test_other_texts_in_a_task_are_told_of(
    finished: Output, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    experiment, output, cells = finished
    target = copy_of(output, tmp_path / "out")
    assert len(finished_cells(experiment, target)) == 2
    assert "different texts" not in caplog.text
    add_cell(target / CELLS_FILE, cells[1].model_copy(update={"data_sha256": {"test": "other"}}))
    assert len(finished_cells(experiment, target)) == 2
    assert "toy: its cells were scored on different texts" in caplog.text


def test_an_experiment_that_moved_has_the_same_cells(
    finished: Output, few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    experiment, *_ = finished
    moved = make_experiment(tmp_path / "elsewhere", few_texts, tiny_bert, head=ONE_SEED)
    assert [plan.key for plan in planned_cells(moved)] == [
        plan.key for plan in planned_cells(experiment)
    ]
