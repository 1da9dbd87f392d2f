"""Trains a multi-exit model, from top to bottom: set up, loop, judge each epoch, checkpoint."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from multi_exit.errors import CheckpointError, ConfigurationError
from training.batches import epoch_order, make_batch, make_labels
from training.checkpoint import (
    CheckpointManifest,
    library_versions,
    load_manifest,
    save_checkpoint,
)
from training.config import TrainingConfig
from training.data import MetricName
from training.evaluate import make_report, run_every_exit
from training.history import History
from training.objective import ObjectiveValue, differentiate
from training.optimiser import clip_gradients, set_learning_rate
from training.parallel import ALONE, Ranks
from training.precision import autocast
from training.resume import RunFolder, RunState, restore_scaler, scaler_state
from training.schedule import plan_step
from training.setup import Run, set_up

logger = logging.getLogger(__name__)
_LOG_EVERY_STEPS = 50


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """What a run ended with."""

    path: Path
    manifest: CheckpointManifest

    def table(self) -> str:
        """Scores of the best epoch by exit, on validation texts, in points of 100."""
        manifest = self.manifest
        layers = "".join(f"{layer:>8}" for layer in manifest.exits)
        scores = "".join(f"{100 * score:>8.2f}" for score in manifest.scores_by_exit)
        lines = [
            f"trained {manifest.steps:,} steps in {manifest.training_seconds:.0f} s, "
            f"checkpoint {self.path}",
            f"{'exit layer':<24}{layers}",
        ]
        if scores:
            lines.append(f"{'validation ' + manifest.metric:<24}{scores}")
        return "\n".join(lines)


def train(config: TrainingConfig, output: Path, ranks: Ranks = ALONE) -> TrainingReport:
    """Trains as configured and writes a checkpoint folder at `output`.

    Goes on where an unfinished run of the same configuration stopped, to the same weights bit for
    bit on the same machine; returns at once where `output` is that run's finished checkpoint.
    Every one of several ranks calls this with the same arguments; the first one alone writes.
    Raises ConfigurationError where it is another's, and DataError for unusable data.
    """
    if output.is_file() or (output.exists() and any(output.iterdir())):
        return _finished(config, output)
    # The others look into the folder once the first has made it.
    if not ranks.first:
        ranks.wait()
    folder = RunFolder.open(output, config, read_only=not ranks.first)
    if ranks.first:
        ranks.wait()
    run = set_up(config, ranks)
    folder.check_data(run.splits.fingerprints)
    state = folder.load(run.model, run.optimiser)
    restore_scaler(run.scaler, state)
    ranks.start_alike(run.model, state.step)

    an_epoch, steps = run.steps_an_epoch, run.steps
    lengths = [len(text) for text in run.train.texts]
    logger.info(
        "training on %d texts, %d labels, exits %s, %s on %s, from step %d of %d",
        len(run.train),
        len(run.splits.labels),
        run.model.exits,
        run.precision,
        run.device,
        state.step,
        steps,
    )
    stopped = _should_stop(config, state, state.step // an_epoch - 1)
    with tqdm(
        total=steps,
        initial=state.step,
        desc="train",
        unit="step",
        disable=None if ranks.first else True,
    ) as progress:
        while state.step < steps and not stopped:
            epoch, at = divmod(state.step, an_epoch)
            order = epoch_order(lengths, config.run.batch_size, seed=config.run.seed, epoch=epoch)
            state = _train_batches(run, folder, state, order[at:], progress)
            state = _judge(run, folder, state, epoch)
            folder.save(state, run.model, run.optimiser)
            folder.forget_best(but=state.best_epoch)
            stopped = _should_stop(config, state, epoch)

    if not ranks.first:
        ranks.wait()
        return TrainingReport(output, load_manifest(output))
    manifest = _manifest(run, state, an_epoch, folder.history.scopes_agree())
    save_checkpoint(
        output,
        weights=folder.load_best(state.best_epoch),
        model=run.model,
        tokenizer=run.tokenizer,
        manifest=manifest,
        history=folder.history.path,
    )
    folder.remove()
    ranks.wait()
    return TrainingReport(output, manifest)


def _train_batches(
    run: Run,
    folder: RunFolder,
    state: RunState,
    order: Sequence[Sequence[int]],
    progress: tqdm[Any],
) -> RunState:
    """The rest of an epoch, with a state to resume from every so many steps."""
    started = time.monotonic() - state.seconds
    kept = torch.tensor(state.kept or [0.0] * len(run.model.exits), dtype=torch.float64)
    for number, rows in enumerate(order, start=1):
        value = train_batch(run, folder.history, rows, state.step)
        kept += value.gate.contrastive.detach().cpu().double()
        state = state.model_copy(
            update={
                "step": state.step + 1,
                "seconds": time.monotonic() - started,
                "kept": tuple(kept.tolist()),
                **scaler_state(run.scaler),
            }
        )
        progress.update()
        if state.step % _LOG_EVERY_STEPS == 0:
            folder.history.step(state.step, value)
            _log(progress, state.step, value.total)
        if state.step % run.config.run.checkpoint_steps == 0 and number < len(order):
            folder.save(state, run.model, run.optimiser)
    return state


def train_batch(run: Run, history: History, rows: Sequence[int], step: int) -> ObjectiveValue:
    """One step of the optimiser; step counts from 0."""
    settings, ranks = run.config.optimiser, run.ranks
    run.model.train()
    own = ranks.own_rows(rows)
    batch = make_batch(run.train, own, run.model.pad_token_id, run.device)
    labels = batch.labels if own is rows else make_labels(run.train, rows, run.device)
    ranks.seed_step(run.config.run.seed, step)
    plan = plan_step(
        run.config.objective,
        exits=len(run.model.exits),
        step=step,
        steps=run.steps,
        steps_an_epoch=run.steps_an_epoch,
    )
    set_learning_rate(
        run.optimiser, step=plan.step, steps=plan.steps, warmup_share=settings.warmup_share
    )
    with autocast(run.device, run.precision):
        outputs = run.model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    loss_scale = run.scaler.get_scale()
    value = run.objective(outputs, labels, plan.exit_weights, loss_scale)
    every = run.config.objective.log_angles_every
    if every and step % every == 0:
        weights = torch.tensor(plan.exit_weights, device=run.device)
        gates = [
            scope(value.terms, outputs, weights, loss_scale) for scope in run.objective.both_scopes
        ]
        history.angles(step + 1, *gates)
    run.optimiser.zero_grad()
    differentiate(value, run.parameters, run.scaler, ranks)
    for part in run.model.untrained(plan.exit_weights, plan.trains_backbone):
        part.zero_grad(set_to_none=True)
    run.scaler.unscale_(run.optimiser)
    clip_gradients(run.model, settings.gradient_clip)
    run.scaler.step(run.optimiser)
    run.scaler.update()
    return value.detached()


def _judge(run: Run, folder: RunFolder, state: RunState, epoch: int) -> RunState:
    """Scores an epoch and keeps its weights if they are the best so far, by mean over exits."""
    if not all(bool(torch.isfinite(weight).all()) for weight in run.model.parameters()):
        raise _not_a_number(state.step)
    if len(run.validation) == 0:
        folder.save_best(run.model, epoch)
        return state.model_copy(update={"best_epoch": epoch})
    metrics = run.splits.metrics
    scores = _score(run, metrics)
    folder.history.epoch(state.step, epoch + 1, metrics[0], scores)
    mean = math.fsum(scores) / len(scores)
    shown = " ".join(f"{100 * score:.2f}" for score in scores)
    logger.info("epoch %d: %s by exit %s, mean %.2f", epoch + 1, metrics[0], shown, 100 * mean)
    if mean <= state.best_mean:
        return state
    folder.save_best(run.model, epoch)
    return state.model_copy(update={"best_scores": scores, "best_epoch": epoch})


def _score(run: Run, metrics: Sequence[MetricName]) -> tuple[float, ...]:
    """By exit, on validation texts. The first rank scores; the others hear of it."""
    scores = torch.zeros(len(run.model.exits), dtype=torch.float64)
    if run.ranks.first:
        outputs = run_every_exit(run.model, run.validation, run.device, describe="validate")
        report = make_report(outputs, run.validation.labels, run.model.exits, metrics)
        scores = torch.tensor(report.scores_by_exit, dtype=torch.float64)
    return tuple(run.ranks.as_first(scores).tolist())


def _should_stop(config: TrainingConfig, state: RunState, epoch: int) -> bool:
    """Whether so many epochs went by without a better one; epoch is the last one finished."""
    patience = config.run.early_stopping_epochs
    return patience is not None and bool(state.best_scores) and epoch - state.best_epoch >= patience


def _manifest(
    run: Run, state: RunState, an_epoch: int, scopes_agree: float | None
) -> CheckpointManifest:
    config = run.config
    return CheckpointManifest(
        labels=run.splits.labels,
        exits=run.model.exits,
        layers=run.model.exits[-1],
        max_length=config.model.max_length,
        unicode_form=config.model.unicode_form,
        takes_pairs=run.splits.takes_pairs,
        metric=run.splits.metric,
        scores_by_exit=state.best_scores,
        epochs=-(-state.step // an_epoch),
        steps=state.step,
        training_seconds=state.seconds,
        contrastive_kept_by_exit=tuple(count / max(1, state.step) for count in state.kept),
        scopes_agree=scopes_agree,
        data_sha256=run.splits.fingerprints,
        configuration=config,
        library_versions=library_versions(),
    )


def _finished(config: TrainingConfig, output: Path) -> TrainingReport:
    try:
        manifest = load_manifest(output)
    except CheckpointError as error:
        raise ConfigurationError(
            f"{output} holds something else than a checkpoint; choose another output"
        ) from error
    if manifest.configuration != config:
        raise ConfigurationError(
            f"{output} holds the checkpoint of another configuration; choose another output"
        )
    logger.info("%s is finished already", output)
    return TrainingReport(output, manifest)


def _log(progress: tqdm[Any], step: int, total: torch.Tensor) -> None:
    loss = float(total.detach())
    if math.isnan(loss):
        raise _not_a_number(step)
    progress.set_postfix(loss=f"{loss:.3f}")
    if progress.disable:
        logger.info("step %d of %d, loss %.3f", step, progress.total, loss)


def _not_a_number(step: int) -> ConfigurationError:
    return ConfigurationError(
        f"the loss is not a number at step {step}; lower the learning rates or use fp32"
    )
