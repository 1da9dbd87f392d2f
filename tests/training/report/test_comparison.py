"""The report of many trainings, into a folder."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from scipy import stats

from multi_exit.errors import DataError
from tests.training.experiment.cells import make_cell
from training.report import report_cells


def rows_of(page: Path, name: str) -> list[dict[str, str]]:
    with (page.parent / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_report_holds_every_picture_that_the_trainings_allow(tmp_path: Path) -> None:
    cells = [
        make_cell(method=method, seed=seed, settings={"objective.contrastive_weight": weight})
        for method, weights in (("ce", (0.5,)), ("acl/cl 2", (0.1, 0.5)))
        for weight in weights
        for seed in (1, 2)
    ]
    page = report_cells(cells, tmp_path / "report")
    pictures = {path.stem for path in page.parent.glob("*.svg")}
    assert pictures == {
        "layer_scores",
        "layer_gains",
        "quality_speed",
        "contrastive_weight",
        "exit_rules_1_ce",
        "exit_rules_2_acl-cl-2",
    }
    assert {path.stem for path in page.parent.glob("*.png")} == pictures
    html = page.read_text()
    assert "6 trainings of 2 methods on 1 task, scored on test texts" in html
    assert "a choice by the very scores" in html
    assert "Gain over ce" in html
    assert [row["training_seconds"] for row in rows_of(page, "cost")] == ["172.0"] * 3
    by_settings = {
        (cell.method, json.dumps(cell.settings), cell.seed): 100 * cell.mean_score for cell in cells
    }
    (reference,) = {key[1] for key in by_settings if key[0] == "ce"}
    rows = [row for row in rows_of(page, "comparison") if row["task"] == "sst2"]
    assert len(rows) == 3
    for row in rows:
        own = [by_settings[row["method"], row["settings"], seed] for seed in (1, 2)]
        assert float(row["mean_over_exits"]) == pytest.approx(sum(own) / 2)
        assert float(row["standard_deviation"]) == pytest.approx(abs(own[0] - own[1]) / 2**0.5)
        gains = [own[seed - 1] - by_settings["ce", reference, seed] for seed in (1, 2)]
        if row["method"] == "ce":
            assert row["gain"] == row["gain_low"] == ""
            continue
        found = stats.ttest_1samp(gains, 0.0).confidence_interval(0.95)
        assert float(row["gain"]) == pytest.approx(sum(gains) / 2)
        assert float(row["gain_low"]) == pytest.approx(found.low)
        assert float(row["gain_high"]) == pytest.approx(found.high)


def test_one_training_has_the_two_curves_and_no_interval(tmp_path: Path) -> None:
    page = report_cells([make_cell(rules=())], tmp_path / "deep" / "report")
    pictures = {path.stem for path in page.parent.glob("*.svg")}
    assert pictures == {"layer_scores", "quality_speed"}
    (row,) = rows_of(page, "comparison")
    assert (row["standard_deviation"], row["gain"], row["gain_low"]) == ("", "", "")


def test_one_pair_is_a_gain_without_an_interval(tmp_path: Path) -> None:
    cells = [make_cell(method="plain"), make_cell(method="other", gain=0.01)]
    page = report_cells(cells, tmp_path, baseline="plain")
    _, row, *_ = rows_of(page, "comparison")
    assert float(row["gain"]) == pytest.approx(100 * (cells[1].mean_score - cells[0].mean_score))
    assert (row["gain_low"], row["gain_high"]) == ("", "")
    assert "Gain over plain" in page.read_text()


def test_without_trainings_there_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no training is finished yet"):
        report_cells([], tmp_path / "report")
    assert not (tmp_path / "report").exists()
