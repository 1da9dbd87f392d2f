"""docs/training.md: its experiment is one, and it explains the columns of the table."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.training.experiment.cells import make_cell
from training.experiment.config import ExperimentConfig
from training.experiment.table import compare, comparison_table

PAGE = (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8")


def test_the_example_is_an_experiment_with_the_defaults_it_names() -> None:
    example = PAGE.split("An experiment file is a grid of trainings:")[1].split("```")[1]
    found = ExperimentConfig.model_validate(tomllib.loads(example.removeprefix("toml")))
    assert set(found.methods) == {"ce", "acl-cl", "acl-lambda"}
    fields = ExperimentConfig.model_fields
    assert found.seeds == fields["seeds"].default
    assert found.split == fields["split"].default
    assert found.keep_checkpoints == fields["keep_checkpoints"].default


def test_every_column_of_the_table_is_explained() -> None:
    rows = compare([make_cell(method="ce"), make_cell()], "ce")
    header = comparison_table(rows, "ce").splitlines()[0]
    for column in ("mean over exits", "area", "gain over ce", "layers saved, %"):
        assert column in header
        assert f"| {column} |" in PAGE
