"""Trains as configured and measures the gradients' angles on the way."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from multi_exit.errors import ConfigurationError
from training.batches import epoch_order
from training.config import TrainingConfig
from training.evaluate import make_report, run_every_exit
from training.history import HISTORY_FILE, History
from training.pilot.groups import parameter_groups
from training.pilot.measure import TERMS, measure_angles
from training.schedule import plan_step
from training.setup import Run, set_up
from training.train import train_batch

logger = logging.getLogger(__name__)
_LOG_EVERY_STEPS = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PilotAngles:
    """All measured angles of a run, in degrees.

    steps [measurements]: mini-batches trained on before. degrees [terms, measurements, groups],
    NaN where there is no angle. losses [measurements]: total loss of the step that followed.
    scores_by_exit: on validation texts at the end, empty without any.
    """

    terms: tuple[str, ...]
    groups: tuple[str, ...]
    steps: NDArray[np.int64]
    degrees: NDArray[np.float64]
    losses: NDArray[np.float64]
    scores_by_exit: tuple[float, ...]

    def of(self, term: str, group: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Steps and angles of one term in one group, without those that have no angle."""
        degrees = self.degrees[self.terms.index(term), :, self.groups.index(group)]
        known = np.isfinite(degrees)
        return self.steps[known], degrees[known]


def run_pilot(config: TrainingConfig, output: Path, *, every: int) -> PilotAngles:
    """A whole training run, with the angles measured before every so many steps.

    Measuring changes nothing: the weights are those of a run without. No checkpoint is written.
    Raises ConfigurationError for every < 1 and for a loss that is not a number.
    """
    if every < 1:
        raise ConfigurationError("measure every step, or every 2 or more")
    run = set_up(config)
    output.mkdir(parents=True, exist_ok=True)
    history = History(output / HISTORY_FILE)
    groups = parameter_groups(run.model)
    lengths = [len(text) for text in run.train.texts]
    steps, degrees, losses = [], [], []
    with tqdm(total=run.steps, desc="pilot", unit="step", disable=None) as progress:
        step = 0
        for epoch in range(config.run.epochs):
            for rows in epoch_order(
                lengths, config.run.batch_size, seed=config.run.seed, epoch=epoch
            ):
                if measured := step % every == 0:
                    degrees.append(measure_angles(run, rows, _exit_weights(run, step), groups))
                    steps.append(step)
                loss = float(train_batch(run, history, rows, step).total)
                if not math.isfinite(loss):
                    raise ConfigurationError(
                        f"the loss is not a number at step {step + 1}; lower the learning rates"
                    )
                if measured:
                    losses.append(loss)
                step += 1
                progress.update()
                if progress.disable and step % _LOG_EVERY_STEPS == 0:
                    logger.info("step %d of %d, loss %.3f", step, run.steps, loss)
    return PilotAngles(
        terms=TERMS,
        groups=tuple(groups),
        steps=np.array(steps, dtype=np.int64),
        degrees=np.stack(degrees, axis=1),
        losses=np.array(losses),
        scores_by_exit=_scores(run),
    )


def _exit_weights(run: Run, step: int) -> tuple[float, ...]:
    plan = plan_step(
        run.config.objective,
        exits=len(run.model.exits),
        step=step,
        steps=run.steps,
        steps_an_epoch=run.steps_an_epoch,
    )
    return plan.exit_weights


@torch.inference_mode()
def _scores(run: Run) -> tuple[float, ...]:
    if len(run.validation) == 0:
        return ()
    outputs = run_every_exit(run.model, run.validation, run.device, describe="validate")
    report = make_report(outputs, run.validation.labels, run.model.exits, run.splits.metrics)
    return report.scores_by_exit
