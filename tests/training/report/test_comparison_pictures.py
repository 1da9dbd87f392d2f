"""Pictures that compare trainings: readable, the same every time, and their numbers recomputed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.training.experiment.cells import make_cell
from tests.training.report.examples import METHODS, assert_readable
from training.data import MetricName
from training.experiment.cell import Cell
from training.report.contrastive_weight import (
    contrastive_weight_figure,
    contrastive_weight_table,
    has_sweep,
)
from training.report.exit_rules import exit_rules_figure, exit_rules_table, methods_with_rules
from training.report.layer_gains import gains_of, layer_gains_figure, layer_gains_table
from training.report.layer_scores import layer_scores_figure, layer_scores_table
from training.report.quality_speed import quality_speed_figure, quality_speed_table
from training.report.write import to_svg

WEIGHT = "objective.contrastive_weight"
TASKS: tuple[tuple[str, MetricName], ...] = (
    ("sst2", "accuracy"),
    ("cola", "matthews"),
    ("mrpc", "f1"),
    ("banking77", "accuracy"),
)


def many_cells(tasks: int, seeds: int, layers: int = 6) -> list[Cell]:
    return [
        make_cell(
            task=task,
            metric=metric,
            method=method,
            seed=seed,
            layers=layers,
            gain=0.003 * METHODS.index(method) - 0.01 * abs(float(weight) - 0.2),
            settings={} if method == "ce" else {WEIGHT: weight},
            rules=("entropy", "maximum", "margin", "label_distance", "patience"),
        )
        for task, metric in TASKS[:tasks]
        for method in METHODS
        for seed in range(seeds)
        for weight in (("0.2",) if method == "ce" else ("0", "0.05", "0.2", "1"))
    ]


DRAW: dict[str, Callable[[Sequence[Cell]], Figure]] = {
    "layer_scores": layer_scores_figure,
    "layer_gains": lambda cells: layer_gains_figure(cells, "ce"),
    "quality_speed": quality_speed_figure,
    "contrastive_weight": contrastive_weight_figure,
    "exit_rules": lambda cells: exit_rules_figure(cells, "acl-cl"),
}


@pytest.mark.parametrize("name", DRAW)
@pytest.mark.parametrize(("tasks", "seeds", "layers"), [(1, 1, 3), (2, 2, 12), (4, 3, 6)])
def test_no_words_overlap_or_are_cut_off(name: str, tasks: int, seeds: int, layers: int) -> None:
    figure = DRAW[name](many_cells(tasks, seeds, layers))
    assert_readable(figure)
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.get_title(loc="left")


@pytest.mark.parametrize("name", DRAW)
def test_the_same_trainings_give_the_same_svg(name: str) -> None:
    cells = many_cells(1, 2)
    first, second = to_svg(DRAW[name](cells)), to_svg(DRAW[name](cells))
    assert first == second
    assert "<dc:date>" not in first


def test_layer_scores_are_means_over_seeds() -> None:
    cells = many_cells(2, 3)
    table = layer_scores_table(cells)
    assert len(table.rows) == 2 * (1 + 4 * (len(METHODS) - 1)) * 6
    drawn = set()
    for task, _, layers, method, shown, is_drawn, layer, seeds, mean, deviation in table.rows:
        values = [
            cell.score_by_exit[int(str(layer)) - 1]
            for cell in cells
            if (cell.task, cell.method) == (task, method)
            and (method == "ce" or f'"{cell.settings[WEIGHT]}"' in str(shown))
        ]
        assert (seeds, layers) == (len(values), 6)
        assert mean == pytest.approx(sum(values) / 3)
        assert deviation == pytest.approx(np.std(values, ddof=1))
        if is_drawn == "yes":
            drawn.add((task, method, shown))
    assert len(drawn) == 2 * len(METHODS), "one setting a method"
    assert ("sst2", "acl-cl", f'{{"{WEIGHT}": "0.2"}}') in drawn


def test_gains_are_paired_by_seed() -> None:
    cells = [
        *(make_cell(method="ce", seed=seed) for seed in (1, 2, 3)),
        *(make_cell(method="acl-cl", seed=seed, gain=0.01) for seed in (2, 3, 4)),
        make_cell(method="berxit", seed=9),
        make_cell(task="alone", method="ce"),
    ]
    assert [list(found.by_method) for found in gains_of(cells, "ce")] == [["acl-cl"]]
    by_key = {(cell.method, cell.seed): cell.score_by_exit for cell in cells[:6]}
    for row in layer_gains_table(cells, "ce").rows:
        index = int(str(row[3])) - 1
        pairs = [by_key["acl-cl", s][index] - by_key["ce", s][index] for s in (2, 3)]
        assert row[4] == 2
        assert row[5] == pytest.approx(sum(pairs) / 2)
        assert row[6] == pytest.approx(abs(pairs[0] - pairs[1]) / 2**0.5)
    with pytest.raises(ValueError, match="no task has trainings of ce"):
        layer_gains_figure(cells[-1:], "ce")


def test_quality_at_full_depth_is_the_score_of_the_last_exit() -> None:
    cells = many_cells(1, 1)
    scores = {
        (cell.method, str(cell.settings.get(WEIGHT, ""))): cell.score_by_exit[-1] for cell in cells
    }
    rows = [row for row in quality_speed_table(cells).rows if row[5] == 6.0]
    assert len(rows) == len(METHODS)
    for _, _, method, shown, _, _, mean, deviation in rows:
        weight = "" if method == "ce" else str(shown).split('"')[3]
        assert mean == pytest.approx(scores[str(method), weight])
        assert deviation is None


def test_a_sweep_holds_all_lambdas_in_order_and_averages_exits_then_seeds() -> None:
    cells = many_cells(1, 2)
    rows = [row for row in contrastive_weight_table(cells).rows if row[2] == "acl-cl"]
    assert [row[4] for row in rows] == [0.0, 0.05, 0.2, 1.0]
    for row in rows:
        means = [
            sum(cell.score_by_exit) / 6
            for cell in cells
            if cell.method == "acl-cl" and float(str(cell.settings[WEIGHT])) == row[4]
        ]
        assert row[6] == pytest.approx(sum(means) / 2)
        assert row[7] == pytest.approx(abs(means[0] - means[1]) / 2**0.5)


def test_what_moves_along_with_lambda_makes_one_sweep() -> None:
    cells = [
        make_cell(settings={WEIGHT: weight, "objective.teacher_weight": weight})
        for weight in (0.1, 0.5)
    ]
    assert [row[4] for row in contrastive_weight_table(cells).rows] == [0.1, 0.5]


def test_of_two_sweeps_of_a_method_the_larger_is_drawn() -> None:
    cells = [
        make_cell(seed=seed, settings={WEIGHT: weight, "objective.temperature": temperature})
        for temperature, seeds in ((0.1, (1,)), (0.3, (1, 2)))
        for weight in (0.1, 0.5)
        for seed in seeds
    ]
    rows = contrastive_weight_table(cells).rows
    assert [(row[4], row[5]) for row in rows] == [(0.1, 2), (0.5, 2)]
    assert all('"objective.temperature": "0.3"' in str(row[3]) for row in rows)


def test_methods_without_a_contrastive_term_have_no_sweep() -> None:
    named = {"objective.method": "ce"}
    cells = [make_cell(method="plain", settings={**named, WEIGHT: weight}) for weight in (0.1, 0.5)]
    assert not has_sweep(cells)
    assert not has_sweep([make_cell(), make_cell(seed=2)])
    with pytest.raises(ValueError, match="no method was trained with several"):
        contrastive_weight_figure(cells)


def test_exit_rules_are_drawn_for_methods_that_compared_them() -> None:
    cells = [make_cell(), make_cell(method="ce", rules=())]
    assert methods_with_rules(cells) == ("acl-cl",)
    rows = exit_rules_table(cells).rows
    assert {row[4] for row in rows} == {"entropy", "patience"}
    ends = {row[4]: row[7] for row in rows if row[6] == 6.0}
    for rule, points in cells[0].exit_rules.items():
        assert ends[rule] == pytest.approx(dict(points)[6.0])
    with pytest.raises(ValueError, match="no training of ce compared"):
        exit_rules_figure(cells, "ce")
