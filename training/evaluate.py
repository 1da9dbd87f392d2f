"""Scores every exit of a model, and the quality it keeps as it gets faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from multi_exit.errors import DataError
from multi_exit.outcome import ExitOutputs, policy_outcome
from multi_exit.policy import Policy
from multi_exit.text_encoder import TextEncoder
from training.batches import EncodedSplit, make_batch
from training.checkpoint import load_checkpoint
from training.data import LabelledExample, load_splits
from training.metrics import score
from training.model import MultiExitModel

CURVE_THRESHOLDS = (0.0, *(float(f"{t:.3g}") for t in np.geomspace(0.002, 1.0, num=60)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """Scores of one split. quality_speed: (average layers run, score) along rising thresholds."""

    metric: str
    samples: int
    exits: tuple[int, ...]
    scores_by_exit: tuple[float, ...]
    quality_speed: tuple[tuple[float, float], ...]

    def table(self) -> str:
        """The scores by exit as text, in points of 100."""
        layers = "".join(f"{layer:>8}" for layer in self.exits)
        scores = "".join(f"{100 * value:>8.2f}" for value in self.scores_by_exit)
        return f"{'exit layer':<24}{layers}\n{self.metric + ' by exit':<24}{scores}"


def evaluate_checkpoint(path: Path, split: str) -> EvaluationReport:
    """Scores a checkpoint on a split of its own data: validation, calibration or test.

    Raises DataError where the configuration has no such split.
    """
    checkpoint = load_checkpoint(path)
    splits = load_splits(checkpoint.manifest.configuration.data)
    examples: Sequence[LabelledExample] = getattr(splits, split)
    if not examples:
        raise DataError(f"the configuration of {path} has no {split} split; set data.{split}")
    encoder = TextEncoder.from_file(
        checkpoint.tokenizer_file,
        max_length=checkpoint.manifest.max_length,
        unicode_form=checkpoint.manifest.unicode_form,
        pad_token_id=checkpoint.model.pad_token_id,
    )
    encoded = encode_split(encoder, examples, splits.labels, split)
    outputs = run_every_exit(checkpoint.model, encoded, torch.device("cpu"), describe=split)
    return make_report(outputs, encoded.labels, checkpoint.manifest.exits, splits.metric)


def encode_split(
    encoder: TextEncoder, examples: Sequence[LabelledExample], labels: Sequence[str], name: str
) -> EncodedSplit:
    """Tokens and label indices of a split, with a progress bar on a terminal."""
    index = {label: position for position, label in enumerate(labels)}
    texts = [
        encoder.encode(example.text_input)
        for example in tqdm(examples, desc=f"tokenise {name}", unit="text", disable=None)
    ]
    indices = np.array([index[example.label] for example in examples], dtype=np.int64)
    return EncodedSplit(texts, indices)


@torch.inference_mode()
def run_every_exit(
    model: MultiExitModel,
    split: EncodedSplit,
    device: torch.device,
    *,
    batch_size: int = 64,
    describe: str = "evaluate",
) -> ExitOutputs:
    """Every text through every exit, in fp32; leaves the model in evaluation mode."""
    model.eval()
    by_length = sorted(range(len(split)), key=lambda row: len(split.texts[row]))
    logits = [np.empty(0, dtype=np.float32)] * len(split)
    with tqdm(total=len(split), desc=describe, unit="text", leave=False, disable=None) as progress:
        for start in range(0, len(split), batch_size):
            rows = by_length[start : start + batch_size]
            batch = make_batch(split, rows, model.pad_token_id, device)
            outputs = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
            found = outputs.logits.float().transpose(0, 1).cpu().numpy()
            for row, values in zip(rows, found, strict=True):
                logits[row] = values
            progress.update(len(rows))
    stacked = np.stack(logits)
    log_p = torch.log_softmax(torch.from_numpy(stacked), dim=-1)
    entropy = -(log_p.exp() * log_p).sum(-1) / math.log(stacked.shape[-1])
    return ExitOutputs(stacked, entropy.clamp(0.0, 1.0).numpy())


def make_report(
    outputs: ExitOutputs,
    labels: np.ndarray[tuple[int], np.dtype[np.int64]],
    exits: tuple[int, ...],
    metric: str,
) -> EvaluationReport:
    """Scores by exit and along thresholds, from what every exit said."""
    outcomes = [
        policy_outcome(outputs, Policy.constant(threshold, len(exits)), exits)
        for threshold in CURVE_THRESHOLDS
    ]
    return EvaluationReport(
        metric=metric,
        samples=len(labels),
        exits=exits,
        scores_by_exit=tuple(
            score(metric, labels, outputs.labels[:, index]) for index in range(len(exits))
        ),
        quality_speed=tuple(
            (outcome.average_layers, score(metric, labels, outcome.answered))
            for outcome in outcomes
        ),
    )
