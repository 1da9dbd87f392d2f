"""The pilot experiment: angles against autograd by hand, and a training that it leaves alone."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from cli.main import main
from multi_exit.errors import ConfigurationError
from tests.conftest import FAMILIES, MakeBackbone
from tests.training.models import small_config, small_model
from training.batches import make_batch
from training.config import TrainingConfig
from training.losses.aligned_contrastive import aligned_contrastive
from training.losses.cross_entropy import cross_entropy
from training.losses.supervised_contrastive import supervised_contrastive
from training.pilot.groups import parameter_groups
from training.pilot.measure import TERMS, angles_by_group, measure_angles
from training.pilot.run import PilotAngles, run_pilot
from training.pilot.tables import angles_table, summary_table
from training.setup import set_up
from training.train import train


@pytest.fixture
def config(few_texts: Path, tiny_bert: Path) -> TrainingConfig:
    return small_config(few_texts, tiny_bert, objective={"method": "ce+scl"}, run={"epochs": 1})


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_is_in_one_group_and_in_the_total(
    make_backbone: MakeBackbone, family: str
) -> None:
    model = small_model(make_backbone(family), exits=(1, 3))
    groups = parameter_groups(model)
    kinds = ["embeddings", "layer 1", "layer 2", "layer 3", "exit 1", "exit 3", "total"]
    assert list(groups) == kinds
    parameters = list(model.parameters())
    places = [place for name, group in groups.items() if name != "total" for place in group]
    assert sorted(places) == list(groups["total"]) == list(range(len(parameters)))
    head = {id(value) for value in model.heads[1].parameters()}
    assert {id(parameters[place]) for place in groups["exit 3"]} == head


def test_angles_are_those_of_trigonometry_group_by_group() -> None:
    first = [torch.tensor([1.0, 0.0]), torch.tensor([[3.0]]), torch.zeros(2)]
    second = [torch.tensor([1.0, 1.0]), torch.tensor([[-2.0]]), torch.ones(2)]
    groups = {"a": (0,), "b": (1,), "none": (2,), "total": (0, 1, 2)}
    found = angles_by_group(first, second, groups)
    assert found[:2] == pytest.approx([45.0, 180.0])
    assert math.isnan(found[2]), "a zero gradient has no angle"
    whole = np.degrees(np.arccos((1.0 - 6.0) / (np.sqrt(10.0) * np.sqrt(8.0))))
    assert found[3] == pytest.approx(whole)


def test_measured_angles_are_those_of_separate_backward_passes(config: TrainingConfig) -> None:
    run = set_up(config)
    groups = parameter_groups(run.model)
    rows, weights = [3, 5, 7, 9, 11, 13], (0.5, 0.3, 0.2)
    state = torch.get_rng_state()
    found = measure_angles(run, rows, weights, groups)
    assert torch.equal(torch.get_rng_state(), state)
    batch = make_batch(run.train, rows, run.model.pad_token_id, run.device)
    temperature = config.objective.temperature
    losses: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        "ce": lambda points, words, logits: cross_entropy(logits, batch.labels),
        "scl": lambda points, words, logits: supervised_contrastive(
            points, batch.labels, temperature
        ),
        "acl-embed": lambda points, words, logits: aligned_contrastive(
            points, words, batch.labels, temperature
        ),
    }
    gradients = {}
    for name, loss in losses.items():
        torch.set_rng_state(state)
        run.model.zero_grad()
        outputs = run.model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        by_exit = loss(outputs.representations, outputs.label_embeddings, outputs.logits)
        (torch.tensor(weights) * by_exit).sum().backward()
        gradients[name] = [
            torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in run.parameters
        ]
    for row, term in zip(found, TERMS, strict=True):
        for angle, places in zip(row, groups.values(), strict=True):
            one, other = (
                torch.cat([gradients[name][place].flatten().double() for place in places])
                for name in ("ce", term)
            )
            cosine = float(torch.nn.functional.cosine_similarity(one, other, dim=0))
            assert angle == pytest.approx(math.degrees(math.acos(cosine)), abs=0.01)


def test_measuring_leaves_the_training_as_it_was(config: TrainingConfig, tmp_path: Path) -> None:
    seen: list[list[Tensor]] = []

    def hook(optimiser: torch.optim.Optimizer, *_: object) -> None:
        seen.append([p.detach().clone() for g in optimiser.param_groups for p in g["params"]])

    handle = register_optimizer_step_post_hook(hook)
    try:
        angles = run_pilot(config, tmp_path / "pilot", every=2)
        after_pilot = seen[-1]
        seen.clear()
        train(config, tmp_path / "plain")
    finally:
        handle.remove()
    assert len(seen) == 7
    assert angles.steps.tolist() == [0, 2, 4, 6]
    assert all(map(torch.equal, after_pilot, seen[-1]))


def test_shares_and_means_of_known_angles() -> None:
    angles = PilotAngles(
        terms=("scl",),
        groups=("embeddings", "total"),
        steps=np.array([0, 5, 10, 15]),
        degrees=np.array([[[np.nan, 60.0], [80.0, 90.0], [100.0, 91.0], [np.nan, 120.0]]]),
        losses=np.ones(4),
        scores_by_exit=(),
    )
    rows = [
        dict(zip(summary_table(angles).columns, row, strict=True))
        for row in summary_table(angles).rows
    ]
    assert [row["measurements"] for row in rows] == [2, 4]
    assert [row["mean_degrees"] for row in rows] == [90.0, 90.25]
    assert [row["share_above_90"] for row in rows] == [0.5, 0.5]
    assert [row["share_in_published_range"] for row in rows] == [1.0, 0.5]
    assert angles_table(angles).rows[:2] == (
        (5, "scl", "embeddings", 80.0),
        (10, "scl", "embeddings", 100.0),
    )


def test_measuring_every_nought_steps_is_refused(config: TrainingConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="every"):
        run_pilot(config, tmp_path, every=0)


def test_the_command_writes_numbers_and_pictures(
    few_texts: Path, tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pilot.toml"
    path.write_text(
        f'[data]\ntrain = "{few_texts}"\n[model]\nbackbone = "{tiny_bert}"\nmax_length = 32\n'
        '[run]\nepochs = 1\nbatch_size = 16\nthreads = 1\nprecision = "fp32"\n'
    )
    output = tmp_path / "out"
    assert main(["pilot", str(path), "--output", str(output), "--set", "objective.method=ce"]) == 0
    shown = capsys.readouterr().out
    assert "above 90°" in shown
    for name in ("report.html", "angle-histogram.svg", "angle-histogram.png", "angle-curve.svg"):
        assert (output / name).stat().st_size > 500
    numbers = json.loads((output / "numbers.json").read_text())
    assert {row["term"] for row in numbers["summary"]} == set(TERMS)
    with (output / "angles.csv").open() as file:
        angles = list(csv.DictReader(file))
    total = [float(a["degrees"]) for a in angles if a["term"] == "scl" and a["group"] == "total"]
    (row,) = (r for r in numbers["summary"] if r["term"] == "scl" and r["group"] == "total")
    assert row["mean_degrees"] == pytest.approx(np.mean(total), abs=0.01)
