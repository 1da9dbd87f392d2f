"""Angles of a history: what is read, what is left out, and the shares above 90 degrees."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from multi_exit.errors import CheckpointError
from tests.training.report.examples import assert_readable
from training.history import HISTORY_FILE
from training.report.angles import (
    AngleSeries,
    angle_curve_figure,
    angle_histogram_figure,
    angles_table,
    moving_mean,
    read_angles,
)


def scope(contrastive: list[float] | None, teacher: list[float] | None) -> dict[str, object]:
    return {"contrastive_degrees": contrastive, "teacher_degrees": teacher}


def write_history(folder: Path, lines: list[dict[str, object]]) -> Path:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / HISTORY_FILE).write_text(text + '{"kind": "ang')
    return folder


def angles_line(step: int, one: list[float], teacher: list[float] | None) -> dict[str, object]:
    whole = None if teacher is None else [100.0] * len(teacher)
    return {
        "kind": "angles",
        "step": step,
        "representation": scope(one, teacher),
        "parameters": scope([80.0 + step] * len(one), whole),
    }


def test_parameters_count_once_and_an_exit_each_in_the_other_scope(tmp_path: Path) -> None:
    lines = [
        {"kind": "epoch", "step": 1, "scores_by_exit": [0.5]},
        angles_line(5, [10.0, 90.0, 95.0], [91.0, 20.0]),
        angles_line(15, [100.0, 20.0, 95.0], [92.0, 120.0]),
        angles_line(25, [float("nan"), 20.0, 95.0], [92.0, 120.0]),
    ]
    series = read_angles(write_history(tmp_path, lines))
    assert [(one.term, one.scope) for one in series] == [
        ("contrastive", "representation"),
        ("contrastive", "parameters"),
        ("teacher", "representation"),
        ("teacher", "parameters"),
    ]
    first, whole, teacher, _ = series
    assert first.steps.tolist() == [5, 15], "the overflowed measurement is left out"
    assert first.share_above_right_angle == 3 / 6, "90 itself is not above"
    assert whole.degrees.tolist() == [[85.0], [95.0], [105.0]]
    assert teacher.degrees.shape == (3, 2)
    rows = angles_table(series).rows
    assert rows[0] == ("contrastive", "representation", 1, 2, 55.0, 0.5)
    assert rows[2] == ("contrastive", "representation", 3, 2, 95.0, 1.0)
    assert rows[3] == ("contrastive", "parameters", None, 3, 95.0, pytest.approx(2 / 3))


def test_a_history_without_angles_has_no_series(tmp_path: Path) -> None:
    assert read_angles(tmp_path) == ()
    lines = [angles_line(1, [45.0], None)]
    assert [one.term for one in read_angles(write_history(tmp_path, lines))] == ["contrastive"] * 2


@pytest.mark.parametrize("line", ["{]", '{"kind": "angles", "step": 1}', "[1]"])
def test_a_damaged_history_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / HISTORY_FILE).write_text(line + "\n")
    with pytest.raises(CheckpointError, match=r"history\.jsonl is damaged"):
        read_angles(tmp_path)


def make_series(measurements: int, exits: int) -> tuple[AngleSeries, ...]:
    rng = np.random.default_rng(0)
    steps = np.arange(1, measurements + 1) * 10
    return tuple(
        AngleSeries(where, term, steps, rng.normal(80, 15, (measurements, columns)).clip(0, 180))
        for term in ("contrastive", "teacher")
        for where, columns in (("representation", exits), ("parameters", 1))
    )


def test_the_moving_mean_equals_a_loop() -> None:
    series = make_series(130, 3)[0]
    steps, smooth = moving_mean(series)
    assert len(steps) == 130 - 5 + 1, "windows of a 25th"
    for index in range(len(steps)):
        assert steps[index] == pytest.approx(sum(series.steps[index : index + 5]) / 5)
        for column in range(3):
            window = series.degrees[index : index + 5, column]
            assert smooth[index, column] == pytest.approx(sum(window) / 5)


@pytest.mark.parametrize(("measurements", "pick"), [(1, slice(0, 2)), (200, slice(0, 4))])
def test_no_words_overlap_or_are_cut_off(measurements: int, pick: slice) -> None:
    series = make_series(measurements, 6)[pick]
    histogram = angle_histogram_figure(series)
    assert_readable(histogram)
    for axes, one in zip(histogram.axes, series, strict=True):
        assert f"{one.share_above_right_angle:.1%} above 90°" in axes.get_title(loc="left")
        assert any(line.get_xdata()[0] == 90 for line in axes.lines), "the line at 90 degrees"
        heights = [bar.get_height() for bar in axes.patches[:36]]
        assert sum(heights) == pytest.approx(100)
    assert_readable(angle_curve_figure(series))
