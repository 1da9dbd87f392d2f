"""Scores every exit of a model, and the quality that it keeps as it gets faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from multi_exit.confidence import label_distance
from multi_exit.errors import DataError, TextError
from multi_exit.exit_rules import exits_along_rules
from multi_exit.outcome import ExitOutputs, policy_outcome
from multi_exit.policy import Policy
from multi_exit.text_encoder import TextEncoder
from training.batches import EncodedSplit, make_batch
from training.checkpoint import load_checkpoint
from training.data import LabelledExample, MetricName
from training.metrics import score
from training.model import ExitBatch, MultiExitModel
from training.precision import choose_device
from training.provenance import splits_of

CURVE_THRESHOLDS = (0.0, *(float(f"{t:.3g}") for t in np.geomspace(0.002, 1.0, num=60)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """Scores of one split.

    scores: by metric, one an exit; the first metric is the one that chooses the best epoch.
    quality_speed: (average layers run, score in the first metric) along rising thresholds.
    exit_rules: the same for every exit rule (`multi_exit/exit_rules.py`), by its name.
    """

    samples: int
    exits: tuple[int, ...]
    scores: dict[MetricName, tuple[float, ...]]
    quality_speed: tuple[tuple[float, float], ...]
    exit_rules: dict[str, tuple[tuple[float, float], ...]]

    @property
    def metric(self) -> MetricName:
        return next(iter(self.scores))

    @property
    def scores_by_exit(self) -> tuple[float, ...]:
        return self.scores[self.metric]

    def table(self) -> str:
        """The scores by exit as text, in points of 100."""
        lines = ["exit layer".ljust(24) + "".join(f"{layer:>8}" for layer in self.exits)]
        for metric, scores in self.scores.items():
            shown = "".join(f"{100 * value:>8.2f}" for value in scores)
            lines.append(f"{metric + ' by exit':<24}{shown}")
        return "\n".join(lines)


def evaluate_checkpoint(path: Path, split: str) -> EvaluationReport:
    """Scores a checkpoint on a split of its own data: train, validation, calibration or test.

    Raises DataError where the configuration has no such split, or the data are others now.
    """
    checkpoint = load_checkpoint(path)
    splits = splits_of(checkpoint.manifest)
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
    device = choose_device("auto")
    outputs = run_every_exit(checkpoint.model.to(device), encoded, device, describe=split)
    return make_report(outputs, encoded.labels, checkpoint.manifest.exits, splits.metrics)


def encode_split(
    encoder: TextEncoder, examples: Sequence[LabelledExample], labels: Sequence[str], name: str
) -> EncodedSplit:
    """Tokens and label indices of a split, with a progress bar on a terminal.

    Raises DataError that names file and row of a text that cannot be encoded.
    """
    index = {label: position for position, label in enumerate(labels)}
    texts = []
    for example in tqdm(examples, desc=f"tokenise {name}", unit="text", disable=None):
        try:
            texts.append(encoder.encode(example.text_input))
        except TextError as error:
            raise DataError(f"{example.origin}: {error}") from error
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
    distances = np.empty((len(split), len(model.exits)))
    with tqdm(total=len(split), desc=describe, unit="text", leave=False, disable=None) as progress:
        for start in range(0, len(split), batch_size):
            rows = by_length[start : start + batch_size]
            batch = make_batch(split, rows, model.pad_token_id, device)
            outputs = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
            found = outputs.logits.float().transpose(0, 1).cpu().numpy()
            for row, values in zip(rows, found, strict=True):
                logits[row] = values
            distances[rows] = _label_distances(outputs)
            progress.update(len(rows))
    stacked = np.stack(logits)
    log_p = torch.log_softmax(torch.from_numpy(stacked), dim=-1)
    entropy = -(log_p.exp() * log_p).sum(-1) / math.log(stacked.shape[-1])
    return ExitOutputs(stacked, entropy.clamp(0.0, 1.0).numpy(), distances)


def _label_distances(outputs: ExitBatch) -> NDArray[np.float64]:
    """Distance to the nearest label embedding at every exit, [batch, exits]."""
    pairs = zip(outputs.representations, outputs.label_embeddings, strict=True)
    return np.stack(
        [label_distance(h.float().cpu().numpy(), w.float().cpu().numpy()) for h, w in pairs], axis=1
    )


def make_report(
    outputs: ExitOutputs,
    labels: np.ndarray[tuple[int], np.dtype[np.int64]],
    exits: tuple[int, ...],
    metrics: Sequence[MetricName],
) -> EvaluationReport:
    """Scores by exit and along thresholds, from what every exit said."""
    classes = outputs.logits.shape[2]
    scores = {
        metric: tuple(
            score(metric, labels, predicted, classes=classes) for predicted in outputs.labels.T
        )
        for metric in metrics
    }
    curve = []
    for threshold in CURVE_THRESHOLDS:
        outcome = policy_outcome(outputs, Policy.constant(threshold, len(exits)), exits)
        quality = score(metrics[0], labels, outcome.answered, classes=classes)
        curve.append((outcome.average_layers, quality))
    layers, predicted_at = np.asarray(exits), outputs.labels
    rules: dict[str, list[tuple[float, float]]] = {}
    for rule, taken in exits_along_rules(outputs):
        answered = predicted_at[np.arange(len(taken)), taken]
        quality = score(metrics[0], labels, answered, classes=classes)
        rules.setdefault(rule, []).append((float(layers[taken].mean()), quality))
    return EvaluationReport(
        samples=len(labels),
        exits=exits,
        scores=scores,
        quality_speed=tuple(curve),
        exit_rules={rule: tuple(points) for rule, points in rules.items()},
    )
