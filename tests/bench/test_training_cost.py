"""What a training step costs: real steps of every method, and the numbers as a table and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch.optim.optimizer import register_optimizer_step_post_hook

from bench.interleave import Ratio
from bench.training_cost import CONTENDERS, StepCost, cost_table, main, measure_training_cost
from multi_exit.errors import ConfigurationError
from tests.conftest import MakeBackbone, toy_rows, write_csv
from tests.training.models import small_config


def test_every_method_takes_real_steps(
    make_backbone: MakeBackbone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = write_csv(tmp_path / "train.csv", toy_rows(80, seed=5))
    path = tmp_path / "cost.toml"
    path.write_text(
        f'[data]\ntrain = "{train}"\n[model]\nbackbone = "{make_backbone("bert")}"\n'
        'max_length = 32\n[run]\nbatch_size = 16\nthreads = 1\nprecision = "fp32"\n'
    )
    moves = 0

    def hook(*_: object) -> None:
        nonlocal moves
        moves += 1

    handle = register_optimizer_step_post_hook(hook)
    try:
        assert main(["--config", str(path), "--rounds", "2", "--json"]) == 0
    finally:
        handle.remove()
    # Two rounds of warm-up come before the two that count.
    assert moves == 4 * len(CONTENDERS)
    found = json.loads(capsys.readouterr().out)
    assert [cost["contender"] for cost in found["costs"]] == list(CONTENDERS)
    assert found["costs"][0]["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert all(cost["ratio"]["median"] > 0 for cost in found["costs"])


def test_the_table_shows_ratios_with_intervals() -> None:
    cost = StepCost(contender="acl-cl", step_seconds=0.5, ratio=Ratio(1.234, 1.1, 1.3))
    assert cost_table([cost]).splitlines()[-1] == "| acl-cl | 0.500 | 1.23 (1.10 to 1.30) |"


def test_one_round_is_refused(make_backbone: MakeBackbone, tmp_path: Path) -> None:
    config = small_config(tmp_path / "none.csv", make_backbone("bert"))
    with pytest.raises(ConfigurationError, match="2 rounds"):
        measure_training_cost(config, rounds=1, steps_a_round=1)
