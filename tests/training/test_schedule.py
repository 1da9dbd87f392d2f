"""Which exits a step trains, as each method says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import MakeBackbone
from tests.training.models import random_tokens, small_model
from training.config import ObjectiveConfig, TrainingConfig
from training.schedule import plan_step

AN_EPOCH = 10


def _weights(config: ObjectiveConfig, step: int, exits: int = 3) -> tuple[float, ...]:
    return plan_step(
        config, exits=exits, step=step, steps=4 * AN_EPOCH, steps_an_epoch=AN_EPOCH
    ).exit_weights


@settings(deadline=None)
@given(step=st.integers(0, 39), exits=st.integers(1, 12))
def test_a_joint_method_trains_every_exit_alike_at_every_step(step: int, exits: int) -> None:
    assert _weights(ObjectiveConfig(method="ce"), step, exits) == (1 / exits,) * exits


def test_given_weights_are_used_as_they_are() -> None:
    config = ObjectiveConfig(method="acl-cl", exit_weights=(3.0, 0.0, 1.0))
    assert _weights(config, 7) == (3.0, 0.0, 1.0)


@settings(deadline=None)
@given(step=st.integers(0, 39))
def test_deebert_trains_the_last_exit_then_freezes_it_with_the_backbone(step: int) -> None:
    config = ObjectiveConfig(method="deebert", last_exit_epochs=2)
    plan = plan_step(config, exits=3, step=step, steps=40, steps_an_epoch=AN_EPOCH)
    if step < 20:
        assert plan.exit_weights == (0.0, 0.0, 1.0)
        assert plan.trains_backbone
        assert (plan.step, plan.steps) == (step, 20)
    else:
        assert plan.exit_weights == (0.5, 0.5, 0.0)
        assert not plan.trains_backbone
        assert (plan.step, plan.steps) == (step - 20, 20)


def test_berxit_alternates_between_the_last_exit_and_all() -> None:
    config = ObjectiveConfig(method="berxit")
    assert [_weights(config, step) for step in range(3)] == [
        (0.0, 0.0, 1.0),
        (1 / 3, 1 / 3, 1 / 3),
        (0.0, 0.0, 1.0),
    ]


def test_the_first_phase_may_train_the_last_exit_alone_with_any_method() -> None:
    config = ObjectiveConfig(method="acl-cl", last_exit_epochs=1)
    assert _weights(config, AN_EPOCH - 1) == (0.0, 0.0, 1.0)
    assert _weights(config, AN_EPOCH) == (1 / 3, 1 / 3, 1 / 3)


@pytest.mark.parametrize(
    ("objective", "says"),
    [
        ({"method": "deebert"}, "last_exit_epochs"),
        ({"method": "deebert", "last_exit_epochs": 1, "exit_weights": [1.0, 1.0]}, "exit_weights"),
        ({"last_exit_epochs": 4}, "leaves none of 4 epochs"),
    ],
)
def test_stages_that_make_no_sense_are_refused(objective: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TrainingConfig.model_validate(
            {
                "data": {"train": "train.csv"},
                "model": {"backbone": "somewhere"},
                "objective": objective,
            }
        )


def test_early_stopping_does_not_judge_a_run_in_two_phases() -> None:
    with pytest.raises(ValueError, match="does not go with"):
        TrainingConfig.model_validate(
            {
                "data": {"train": "train.csv"},
                "model": {"backbone": "somewhere"},
                "objective": {"last_exit_epochs": 1},
                "run": {"early_stopping_epochs": 1},
            }
        )


def test_what_a_step_does_not_train_the_optimiser_leaves_alone(make_backbone: MakeBackbone) -> None:
    model = small_model(make_backbone("bert"))
    exits = len(model.exits)
    vocabulary = model.backbone.config.vocab_size
    tokens = random_tokens(4, 8, vocabulary=vocabulary, pad=model.pad_token_id)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)

    def step(weights: list[float], *, trains_backbone: bool) -> None:
        optimiser.zero_grad()
        model(**tokens).logits.square().sum().backward()
        for part in model.untrained(weights, trains_backbone):
            part.zero_grad(set_to_none=True)
        optimiser.step()

    # A first step of everything, so that moments would move what must stand still.
    step([1.0] * exits, trains_backbone=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    step([1.0] * (exits - 1) + [0.0], trains_backbone=False)
    for name, value in model.named_parameters():
        stays = name.startswith(("backbone.", f"heads.{exits - 1}."))
        assert torch.equal(value, before[name]) is stays, name
