"""Which exits a step trains, whether the backbone moves, and where its learning rate stands.

A pure function of the step, so that a resumed run needs no state for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from training.config import ObjectiveConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What one step does.

    exit_weights: w_m, one an exit; an exit of weight 0 stays as it is. trains_backbone: whether
    the backbone moves. step, steps: of the phase that the learning rate rises and falls over.
    """

    exit_weights: tuple[float, ...]
    trains_backbone: bool
    step: int
    steps: int


def plan_step(
    config: ObjectiveConfig, *, exits: int, step: int, steps: int, steps_an_epoch: int
) -> StepPlan:
    """The plan of a step, counted from 0, of a run of `steps`.

    Joint methods train all exits at every step, after `last_exit_epochs` of the last exit alone.
    deebert then freezes backbone and last exit (Xin et al. 2020); berxit alternates between the
    last exit and all (Xin et al. 2021).
    """
    last_only = (0.0,) * (exits - 1) + (1.0,)
    first_phase = min(steps, config.last_exit_epochs * steps_an_epoch)
    if step < first_phase:
        return StepPlan(exit_weights=last_only, trains_backbone=True, step=step, steps=first_phase)
    step, steps = step - first_phase, steps - first_phase
    weights = config.exit_weights or (1.0 / exits,) * exits
    if config.method == "deebert" and exits > 1:
        weights = (1.0 / (exits - 1),) * (exits - 1) + (0.0,)
    elif config.method == "berxit" and step % 2 == 0:
        weights = last_only
    return StepPlan(
        exit_weights=weights, trains_backbone=config.method != "deebert", step=step, steps=steps
    )
