"""Sorting trainings: seeds come together, settings do not, and one setting a method is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.experiment.cells import make_cell
from training.report.groups import panels_of, seeds_phrase, spread


def test_seeds_come_together_and_settings_stay_apart() -> None:
    cells = [
        make_cell(seed=seed, settings={"objective.contrastive_weight": weight})
        for seed in (1, 2, 3)
        for weight in (0.1, 0.5)
    ]
    (panel,) = panels_of(cells)
    assert [[cell.seed for cell in group.cells] for group in panel.groups] == [[1, 2, 3]] * 2
    assert panel.title == "sst2 · 6 layers"


def test_tasks_metrics_and_depths_have_panels_of_their_own() -> None:
    cells = [
        make_cell(),
        make_cell(task="cola"),
        make_cell(metric="f1"),
        make_cell(layers=12),
        make_cell(seed=2),
    ]
    assert [len(panel.groups[0].cells) for panel in panels_of(cells)] == [2, 1, 1, 1]


def test_a_model_with_one_exit_stands_beside_those_that_it_replaces() -> None:
    small = make_cell(method="small", layers=1)
    alone = make_cell(task="cola", method="small", layers=1)
    beside, own = panels_of([small, make_cell(), make_cell(layers=12), alone])[::2]
    assert [group.method for group in beside.groups] == ["small", "acl-cl"]
    assert (beside.layers, beside.exits) == (12, tuple(range(1, 13)))
    assert own.layers == 1


def test_trainings_of_another_configuration_are_no_further_seeds() -> None:
    cell = make_cell()
    longer = cell.model_copy(update={"configuration": {"run": {"seed": 1, "epochs": 9}}})
    (panel,) = panels_of([cell, make_cell(seed=2), longer])
    assert [len(group.cells) for group in panel.groups] == [2, 1]


def test_more_seeds_win_over_a_higher_score_and_then_the_score_decides() -> None:
    few = [make_cell(gain=0.05, settings={"a.b": 1})]
    worse = [make_cell(seed=seed, settings={"a.b": 2}) for seed in (1, 2)]
    better = [make_cell(seed=seed, gain=0.01, settings={"a.b": 3}) for seed in (1, 2)]
    (panel,) = panels_of([*few, *worse, *better])
    (drawn,) = panel.one_a_method()
    assert drawn.settings == '{"a.b": "3"}'


def test_spread_is_that_of_a_sample() -> None:
    values = np.array([[0.1, 0.5], [0.4, 0.5], [0.1, 0.2]])
    found = spread(values)
    assert found is not None
    for column in range(2):
        mean = sum(values[:, column]) / 3
        variance = sum((value - mean) ** 2 for value in values[:, column]) / 2
        assert found[column] == pytest.approx(variance**0.5)
    assert spread(values[:1]) is None


def test_titles_say_how_many_seeds_there_are() -> None:
    one, two = panels_of([make_cell(), make_cell(task="a", seed=1), make_cell(task="a", seed=2)])
    assert seeds_phrase(one.groups, "bars") == "one seed"
    assert seeds_phrase(two.groups, "bars") == "mean of 2 seeds, bars ± 1 st. dev."
    both = (*one.groups, *two.groups)
    assert seeds_phrase(both, "bands") == "mean of 1 to 2 seeds, bands ± 1 st. dev."
