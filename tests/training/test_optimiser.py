"""The optimiser's groups and the schedule of their rates."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tests.training.models import small_model
from training.config import OptimiserConfig
from training.optimiser import clip_gradients, make_optimiser, set_learning_rate


def _rates(steps: int, warmup_share: float) -> list[float]:
    parameter = torch.nn.Parameter(torch.ones(1))
    optimiser = torch.optim.SGD([{"params": [parameter], "lr": 1.0, "base_lr": 2.0}])
    rates = []
    for step in range(steps):
        set_learning_rate(optimiser, step=step, steps=steps, warmup_share=warmup_share)
        rates.append(float(optimiser.param_groups[0]["lr"]))
    return rates


def test_the_rate_rises_then_falls_in_straight_lines() -> None:
    rates = _rates(20, 0.25)
    assert rates[:5] == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0])
    falls = [before - after for before, after in pairwise(rates[4:])]
    assert falls == pytest.approx([falls[0]] * len(falls))
    assert rates[-1] == pytest.approx(falls[0]), "it would reach 0 one step later"


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("warmup_share", [0.0, 0.5, 0.99])
def test_the_rate_is_never_negative_nor_above_its_base(steps: int, warmup_share: float) -> None:
    rates = _rates(steps, warmup_share)
    assert all(0 < rate <= 2.0 for rate in rates)


def test_every_parameter_is_in_one_group_with_its_own_rate_and_decay(tiny_bert: Path) -> None:
    model = small_model(tiny_bert)
    config = OptimiserConfig(
        backbone_learning_rate=1e-4, exit_learning_rate=1e-3, weight_decay=0.05
    )
    optimiser = make_optimiser(model, config)
    found: dict[int, tuple[float, float]] = {}
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            assert id(parameter) not in found
            found[id(parameter)] = (group["base_lr"], group["weight_decay"])
    for name, parameter in model.named_parameters():
        rate = 1e-4 if name.startswith("backbone.") else 1e-3
        decay = 0.0 if name.endswith("bias") or "LayerNorm" in name else 0.05
        assert found.pop(id(parameter)) == (rate, decay), name
    assert not found


def test_clipping_keeps_the_direction() -> None:
    layer = torch.nn.Linear(2, 1, bias=False)
    layer.weight.grad = torch.tensor([[3.0, 4.0]])
    assert clip_gradients(layer, 1.0) == pytest.approx(5.0)
    assert layer.weight.grad.tolist()[0] == pytest.approx([0.6, 0.8], rel=1e-4)
