"""Planning an experiment: order, sweeps, limits, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from multi_exit.errors import ConfigurationError
from tests.training.experiment.grids import make_experiment, write_experiment
from training.experiment.config import load_experiment, planned_cells


@pytest.fixture
def parts(few_texts: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """Folder, texts, and a backbone that planning does not look at."""
    return tmp_path, few_texts, Path("/models/none")


def test_cells_run_by_seed_then_task_then_method(parts: tuple[Path, Path, Path]) -> None:
    experiment = make_experiment(
        *parts, head='baseline = "ce"\nseeds = [5, 2]', tasks=("one", "two")
    )
    found = [(plan.seed, plan.task, plan.method) for plan in planned_cells(experiment)]
    assert found == [
        (seed, task, method)
        for seed in (5, 2)
        for task in ("one", "two")
        for method in ("ce", "acl-embed")
    ]
    for plan in planned_cells(experiment):
        assert plan.training.run.seed == plan.seed
        assert plan.training.objective.method == plan.method
        assert plan.training.run.epochs == 1, "the task's own configuration holds otherwise"
        assert plan.settings == {"objective.method": plan.method}
        assert plan.split == "test"
    assert len({plan.key for plan in planned_cells(experiment)}) == 8
    assert len({plan.folder for plan in planned_cells(experiment)}) == 8


def test_a_sweep_is_every_combination_of_its_values(parts: tuple[Path, Path, Path]) -> None:
    methods = """
    [methods]
    ce = { set = ["objective.method=ce"], seeds = [1] }
    [methods.acl]
    set = ["objective.method=acl-embed", "objective.temperature=0.3"]
    seeds = [1]
    sweep = { "objective.contrastive_weight" = [0.1, 1], "model.pooling" = ["cls", "mean"] }
    """
    plans = list(planned_cells(make_experiment(*parts, methods=methods)))[1:]
    assert [
        (plan.training.objective.contrastive_weight, plan.training.model.pooling) for plan in plans
    ] == [(0.1, "cls"), (0.1, "mean"), (1.0, "cls"), (1.0, "mean")]
    assert {plan.training.objective.temperature for plan in plans} == {0.3}
    assert plans[0].settings == {
        "objective.method": "acl-embed",
        "objective.temperature": "0.3",
        "objective.contrastive_weight": "0.1",
        "model.pooling": "cls",
    }


def test_whole_numbers_and_booleans_stay_what_they_are(parts: tuple[Path, Path, Path]) -> None:
    methods = """
    [methods]
    ce = { set = ["objective.method=ce"], seeds = [1] }
    longer = { seeds = [1], sweep = { "run.epochs" = [2, 3] } }
    """
    plans = list(planned_cells(make_experiment(*parts, methods=methods)))[1:]
    assert [plan.training.run.epochs for plan in plans] == [2, 3]


def test_a_method_may_have_its_own_tasks_and_seeds(parts: tuple[Path, Path, Path]) -> None:
    methods = """
    [methods]
    ce = { set = ["objective.method=ce"] }
    some = { tasks = ["two"], seeds = [2, 9, 7] }
    """
    experiment = make_experiment(*parts, methods=methods, tasks=("one", "two"))
    found = [(plan.seed, plan.task) for plan in planned_cells(experiment) if plan.method == "some"]
    assert found == [(2, "two"), (9, "two"), (7, "two")]
    assert [plan.seed for plan in planned_cells(experiment)] == [1, 1, 2, 2, 2, 9, 7]


def test_a_tasks_own_changes_are_below_the_methods(parts: tuple[Path, Path, Path]) -> None:
    path = write_experiment(*parts)
    path.write_text(
        path.read_text().replace(
            'config = "tasks/toy.toml"',
            'config = "tasks/toy.toml", set = ["run.epochs=7", "objective.method=berxit"]',
        )
    )
    plan = next(planned_cells(load_experiment(path)))
    assert (plan.training.run.epochs, plan.training.objective.method) == (7, "ce")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('baseline = "ce"', 'baseline = "no"', "baseline 'no' is not among methods"),
        ('baseline = "ce"', 'baseline = "ce"\nspeed = 1', "speed"),
        ("seeds = [1, 2]", "seeds = []", "seeds"),
        ("seeds = [1, 2]", 'split = "train"', "split"),
        ("ce = { set", 'ce = { tasks = ["other"], set', "names 'other', not a task"),
        ("ce = { set", "ce = { tasks = [], set", "tasks"),
        ("ce = { set", 'ce = { sweep = { "run.epochs" = [2] }, set', "has a sweep"),
        ("acl-embed = { set", 'acl-embed = { sweep = { "run.epochs" = [] }, set', "run.epochs"),
        ("acl-embed = { set", "acl-embed = { sweep = { epochs = [2] }, set", "epochs"),
        ('"objective.method=ce"', '"objective"', "set"),
        ("[tasks]\ntoy = {", "[other]\ntoy = {", "tasks"),
        ("[tasks]\n", "tasks = 3\n[others]\n", "tasks"),
        ("ce = {", '"../ce" = {', "methods"),
    ],
)
def test_what_is_wrong_in_an_experiment_is_named(
    old: str, new: str, message: str, parts: tuple[Path, Path, Path]
) -> None:
    path = write_experiment(*parts)
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))
    with pytest.raises(ConfigurationError, match=message):
        load_experiment(path)


def test_a_wrong_setting_is_found_by_planning(parts: tuple[Path, Path, Path]) -> None:
    methods = '[methods]\nce = {}\nodd = { set = ["objective.methud=ce"] }'
    with pytest.raises(ConfigurationError, match="methud"):
        list(planned_cells(make_experiment(*parts, methods=methods)))
