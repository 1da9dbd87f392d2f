"""The report of one checkpoint: what its exits say about a split of its own data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from multi_exit.errors import ConfigurationError, DataError
from multi_exit.outcome import ExitOutputs
from multi_exit.text_encoder import TextEncoder
from training.batches import EncodedSplit
from training.checkpoint import Checkpoint, CheckpointManifest, load_checkpoint
from training.data import LabelledExample, MetricName
from training.evaluate import EvaluationReport, encode_split, make_report, run_every_exit
from training.experiment.cell import measured_cell
from training.precision import choose_device
from training.provenance import splits_of
from training.report.angles import (
    angle_curve_figure,
    angle_histogram_figure,
    angles_table,
    read_angles,
)
from training.report.comparison import curve_pictures, rule_pictures
from training.report.exit_rules import exit_rules_table
from training.report.layer_scores import layer_scores_table
from training.report.leaving import (
    leaving_by_class,
    leaving_by_length,
    leaving_figure,
    leaving_table,
    threshold_at_layers,
)
from training.report.numbers import Table
from training.report.quality_speed import quality_speed_table
from training.report.reliability import (
    calibration_table,
    reliability_by_exit,
    reliability_figure,
    reliability_table,
)
from training.report.representation_map import (
    map_figure,
    map_representations,
    map_table,
    representations_at,
    sample_rows,
)
from training.report.write import Picture, write_report

Numbers = dict[str, Table]


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """The HTML page, and the scores that it shows."""

    page: Path
    evaluation: EvaluationReport


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """A checkpoint, one split of its data as tokens, and what every exit says about it."""

    checkpoint: Checkpoint
    split: EncodedSplit
    metrics: Sequence[MetricName]
    outputs: ExitOutputs
    device: torch.device

    @property
    def manifest(self) -> CheckpointManifest:
        return self.checkpoint.manifest

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.split.labels


def report_checkpoint(
    checkpoint_path: Path, split: str, output: Path, exit_layer: int | None = None
) -> CheckpointReport:
    """Draws a checkpoint on a split of its own data into a folder.

    split: train, validation, calibration or test. exit_layer: whose representations are mapped, the
    last where absent. Pictures: score by exit layer, quality against layers run, exit rules, where
    texts leave by class and length, reliability, the map of representations, and the angles of
    gradients where training measured them (`objective.log_angles_every`).
    Raises ConfigurationError for a layer without an exit, CheckpointError for a checkpoint that
    cannot be read, and DataError where the data are others now, or have no such split.
    """
    evaluated = _evaluate(checkpoint_path, split, exit_layer)
    manifest = evaluated.manifest
    evaluation = make_report(evaluated.outputs, evaluated.labels, manifest.exits, evaluated.metrics)
    # A comparison of one training, whose pictures it shares.
    cell = measured_cell(
        manifest,
        evaluation,
        task=_task(manifest),
        method=manifest.configuration.objective.method,
        settings={},
        split=split,
    )
    numbers: Numbers = {
        "layer_scores": layer_scores_table([cell]),
        "quality_speed": quality_speed_table([cell]),
        "exit_rules": exit_rules_table([cell]),
    }
    pictures = [
        *curve_pictures([cell]),
        *rule_pictures([cell]),
        _leaving(evaluated, numbers),
        _reliability(evaluated, numbers),
        _map(evaluated, exit_layer or manifest.exits[-1], numbers),
        *_angles(checkpoint_path, numbers),
    ]
    page = write_report(
        output,
        pictures,
        numbers,
        title=f"{manifest.configuration.objective.method} on {cell.task}",
        introduction=f"{len(evaluated.labels):,} texts of the {split} split, "
        f"{len(manifest.labels)} labels, {len(manifest.exits)} exits in {manifest.layers} layers, "
        f"seed {manifest.configuration.run.seed}. One seed decides nothing between methods.",
    )
    return CheckpointReport(page, evaluation)


def _evaluate(path: Path, name: str, exit_layer: int | None) -> Evaluated:
    checkpoint = load_checkpoint(path)
    manifest = checkpoint.manifest
    if exit_layer is not None and exit_layer not in manifest.exits:
        raise ConfigurationError(
            f"layer {exit_layer} has no exit; {path} has exits at {list(manifest.exits)}"
        )
    splits = splits_of(manifest)
    examples: Sequence[LabelledExample] = getattr(splits, name)
    if not examples:
        raise DataError(f"the configuration of {path} has no {name} split; set data.{name}")
    encoder = TextEncoder.from_file(
        checkpoint.tokenizer_file,
        max_length=manifest.max_length,
        unicode_form=manifest.unicode_form,
        pad_token_id=checkpoint.model.pad_token_id,
    )
    split = encode_split(encoder, examples, splits.labels, name)
    device = choose_device("auto")
    outputs = run_every_exit(checkpoint.model.to(device), split, device, describe=name)
    return Evaluated(checkpoint, split, splits.metrics, outputs, device)


def _task(manifest: CheckpointManifest) -> str:
    """A name for the data: GLUE task, data set, or folder and file of the training texts."""
    data = manifest.configuration.data
    if data.glue or data.dataset:
        return str(data.glue or data.dataset)
    assert data.train is not None, "DataConfig asks for one of glue, dataset and train"
    return f"{data.train.parent.name}/{data.train.name}"


def _leaving(evaluated: Evaluated, numbers: Numbers) -> Picture:
    exits = evaluated.manifest.exits
    threshold, outcome = threshold_at_layers(evaluated.outputs, exits, exits[-1] / 2)
    lengths = np.array([len(text) for text in evaluated.split.texts])
    names = evaluated.manifest.labels
    by_class = leaving_by_class(outcome.taken, evaluated.labels, names, len(exits))
    by_length = leaving_by_length(outcome.taken, lengths, len(exits))
    numbers["leaving_policy"] = Table(
        ("entropy_threshold", "average_layers", "agreement_with_full_depth"),
        ((threshold, outcome.average_layers, outcome.agreement),),
    )
    numbers["leaving_by_class"] = leaving_table(by_class, exits)
    numbers["leaving_by_length"] = leaving_table(by_length, exits)
    return Picture(
        name="leaving",
        heading="Where texts leave",
        caption="Number of texts in brackets, layers run on average at the right. The threshold is "
        "the one that runs nearest to half of the layers on these very texts; to serve, calibrate "
        "one on others. Tokens count the tokenizer's control tokens.",
        figure=leaving_figure(by_class, by_length, exits, threshold=threshold, outcome=outcome),
        tables=("leaving_policy", "leaving_by_class", "leaving_by_length"),
    )


def _reliability(evaluated: Evaluated, numbers: Numbers) -> Picture:
    exits = evaluated.manifest.exits
    found = reliability_by_exit(evaluated.outputs, evaluated.labels)
    numbers["calibration_error"] = calibration_table(found, exits)
    numbers["reliability"] = reliability_table(found, exits)
    return Picture(
        name="reliability",
        heading="Reliability by exit",
        caption="Texts in 15 bins of the largest probability. On the dashed diagonal an exit is "
        "right as often as it says; below it says too much. Bins with few texts are noisy.",
        figure=reliability_figure(found, exits),
        tables=("calibration_error", "reliability"),
    )


def _map(evaluated: Evaluated, exit_layer: int, numbers: Numbers) -> Picture:
    rows = sample_rows(len(evaluated.labels))
    model, exit_index = evaluated.checkpoint.model, evaluated.manifest.exits.index(exit_layer)
    representations, embeddings = representations_at(
        model, evaluated.split, rows.tolist(), exit_index, evaluated.device
    )
    found = map_representations(representations, embeddings, evaluated.labels[rows])
    names = evaluated.manifest.labels
    numbers["representation_map"] = map_table(found, names)
    return Picture(
        name="representation_map",
        heading=f"Representations at exit {exit_layer}",
        caption="Near points are alike by cosine; distances between far clusters mean nothing. "
        "Aligned contrastive learning draws texts to the star of their label.",
        figure=map_figure(found, names, exit_layer=exit_layer, all_texts=len(evaluated.labels)),
        tables=("representation_map",),
    )


def _angles(path: Path, numbers: Numbers) -> list[Picture]:
    series = read_angles(path)
    if not series:
        return []
    numbers["angles"] = angles_table(series)
    return [
        Picture(
            name="angle_histogram",
            heading="Angles of gradients",
            caption="Scope representation has an angle for each exit, scope parameters one for "
            "all. ACL-Grad drops a term for a mini-batch whose angle is above 90 degrees.",
            figure=angle_histogram_figure(series),
            tables=("angles",),
        ),
        Picture(
            name="angle_curve",
            heading="Angles over training",
            caption="Moving mean over a 25th of the measurements; the dashed line is 90 degrees.",
            figure=angle_curve_figure(series),
        ),
    ]
