"""Two processes train as one would: same losses, same decisions, same weights on both ranks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import MakeBackbone
from tests.training.models import small_config
from tests.training.recorded_ranks import recorded
from training.config import TrainingConfig
from training.model import ExitBatch
from training.parallel import ALONE, Ranks, joined_ranks
from training.train import train

ROOT = Path(__file__).parents[2]
WORLD = 2
# 56 texts train in batches of 11: the last batch of an epoch is a single text for two ranks.
BATCH_SIZE, STEPS = 11, 12
# Angles at which a tiny model's gates really go both ways.
OBJECTIVES: dict[str, dict[str, Any]] = {
    "acl-cl": {"method": "acl-cl", "gate": "representation", "largest_angle": 80.0},
    "acl-grad": {"method": "acl-grad", "gate": "parameters", "largest_angle": 70.0},
    "ce+scl": {"method": "ce+scl"},
}
# Rounding alone tells them apart: one process adds rows up in another order and pads to another
# length. AdamW makes whole steps of gradients that are all rounding, so it grows step by step.
LOSS_TOLERANCE = 2e-4
NORM_TOLERANCE = 2e-3


@pytest.fixture(scope="module")
def without_dropout(make_backbone: MakeBackbone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny BERT with its own dropout off: ranks draw other masks than one process does."""
    folder = tmp_path_factory.mktemp("without-dropout") / "backbone"
    shutil.copytree(make_backbone("bert"), folder)
    content = json.loads((folder / "config.json").read_text())
    content |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def configs(few_texts: Path, without_dropout: Path, tiny_bert: Path) -> dict[str, TrainingConfig]:
    """By name; the last two are one run with dropout, undisturbed and interrupted."""
    run = {"batch_size": BATCH_SIZE, "device": "cpu"}
    found = {
        name: small_config(
            few_texts, without_dropout, objective=objective, model={"dropout": 0.0}, run=run
        )
        for name, objective in OBJECTIVES.items()
    }
    with_dropout = small_config(few_texts, tiny_bert, objective=OBJECTIVES["acl-cl"], run=run)
    return {**found, "dropout": with_dropout, "resumed": with_dropout}


@pytest.fixture(scope="module")
def launched(configs: dict[str, TrainingConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All configurations trained by two processes, under one launch."""
    folder = tmp_path_factory.mktemp("launched")
    for name, config in configs.items():
        (folder / f"{name}.json").write_text(config.model_dump_json())
    # Seven steps are beyond the end of the first epoch, between two states to resume from.
    plan = {name: 8 if name == "resumed" else None for name in configs}
    (folder / "plan.json").write_text(json.dumps(plan))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    script = ["--nproc-per-node", str(WORLD), "-m", "tests.training.recorded_ranks", str(folder)]
    result = subprocess.run(
        [*launcher, *script],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return folder


def _steps(folder: Path, name: str, rank: int) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = json.loads((folder / f"{name}.rank{rank}.json").read_text())
    return steps


@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_processes_take_the_steps_of_one(
    launched: Path, configs: dict[str, TrainingConfig], tmp_path: Path, name: str
) -> None:
    alone: list[dict[str, Any]] = []
    with recorded(alone):
        train(configs[name], tmp_path / "alone")
    both = _steps(launched, name, 0)
    assert len(both) == len(alone) == STEPS
    for key, tolerance in (("loss", LOSS_TOLERANCE), ("gradient_norm", NORM_TOLERANCE)):
        np.testing.assert_allclose(
            [step[key] for step in both], [step[key] for step in alone], rtol=tolerance
        )
    for key in ("contrastive", "teacher"):
        assert [step[key] for step in both] == [step[key] for step in alone]
    found, expected = (
        load_file(folder / "model.safetensors") for folder in (launched / name, tmp_path / "alone")
    )
    differences = torch.cat([(found[key] - expected[key]).flatten() for key in expected])
    assert differences.abs().mean() < 2e-5, "a step is 1e-3"
    scores = [
        json.loads((folder / "checkpoint.json").read_text())["scores_by_exit"]
        for folder in (launched / name, tmp_path / "alone")
    ]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("name", ["acl-cl", "acl-grad"])
def test_the_gates_compared_went_both_ways(launched: Path, name: str) -> None:
    decisions = [kept for step in _steps(launched, name, 0) for kept in step["contrastive"]]
    assert set(decisions) == {0.0, 1.0}


def test_all_ranks_decide_alike(launched: Path, configs: dict[str, TrainingConfig]) -> None:
    for name in configs:
        first, second = (_steps(launched, name, rank) for rank in range(WORLD))
        # Dropout masks alone are each rank's and step's own.
        seeds = [step.pop("seed") for step in (*first, *second)]
        assert len(set(seeds)) == len(seeds), name
        assert first == second, name


def test_an_interrupted_run_of_two_goes_on_bit_for_bit(launched: Path) -> None:
    weights = [
        (launched / name / "model.safetensors").read_bytes() for name in ("dropout", "resumed")
    ]
    assert weights[0] == weights[1]
    history = [(launched / name / "history.jsonl").read_bytes() for name in ("dropout", "resumed")]
    assert history[0] == history[1]
    assert not list(launched.glob("*.run"))
    # It went on from a state, not from the start.
    assert 0 < len(_steps(launched, "resumed", 0)) < STEPS


@pytest.mark.parametrize("rows", range(1, 12))
@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_ranks_share_out_every_row_once_and_equally(rows: int, world: int) -> None:
    numbers = list(range(100, 100 + rows))
    shares = [Ranks(rank, world).own_rows(numbers) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1, "messages between ranks have equal sizes"
    # Read across the ranks, the global order comes back, and what was repeated comes last.
    across = [row for together in zip(*shares, strict=True) for row in together]
    assert across[:rows] == numbers
    assert set(across[rows:]) <= {numbers[0]}


def test_alone_nothing_is_copied() -> None:
    batch = ExitBatch(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), torch.zeros(1, 2, 2))
    assert ALONE.gather(batch, 2) is batch
    pieces = [torch.zeros(2)]
    assert ALONE.summed(pieces) is pieces
    assert ALONE.whole_exit_gradients(pieces) is pieces
    assert ALONE.as_first(pieces[0]) is pieces[0]
    before = torch.get_rng_state()
    ALONE.seed_step(7, 3)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_launcher_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined_ranks("auto") as ranks:
        assert ranks is ALONE


def test_every_rank_and_step_has_dropout_masks_of_its_own() -> None:
    masks = set()
    for rank in range(3):
        for step in range(3):
            Ranks(rank, 3).seed_step(7, step)
            masks.add(tuple(torch.rand(4).tolist()))
    assert len(masks) == 9
    Ranks(1, 3).seed_step(7, 2)
    assert tuple(torch.rand(4).tolist()) in masks, "a function of seed, rank and step"
