"""Calibrates a draft bundle on the graphs that will serve, and adds golden examples."""

from __future__ import annotations

from collections.abc import Sequence

from tqdm import tqdm

from export.config import ExportConfig
from export.encode import encode_examples, label_indices
from export.golden import golden_examples
from multi_exit.bundle import BundleManifest
from multi_exit.calibration import LabelledOutputs, ModelShape, calibrate, default_point
from multi_exit.offline import every_exit, stage_seconds
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import TextEncoder
from training.data import LabelledExample, Splits

_TIMED_TEXTS = 50


def calibrated(
    manifest: BundleManifest,
    runner: StageRunner,
    encoder: TextEncoder,
    splits: Splits,
    config: ExportConfig,
) -> BundleManifest:
    """The manifest with operating points, certified on the calibration split, and golden examples.

    Validation texts place the thresholds of every exit, so that no calibration text is spent on
    that. Raises DataError for a label that the bundle does not know.
    """

    def outputs_of(examples: Sequence[LabelledExample], name: str) -> LabelledOutputs:
        encoded = encode_examples(encoder, examples, name)
        with tqdm(total=len(encoded), desc=name, unit="text", disable=None) as progress:
            outputs = every_exit(runner, manifest, encoded, advanced=progress.update)
        return LabelledOutputs(outputs, label_indices(examples, manifest.labels))

    timed = encode_examples(encoder, splits.calibration[:_TIMED_TEXTS], "timing")
    shape = ModelShape(
        label_names=manifest.labels,
        exits=manifest.exits,
        stage_seconds=stage_seconds(runner, manifest, timed),
    )
    tuning = outputs_of(splits.validation, "tuning") if splits.validation else None
    points = calibrate(outputs_of(splits.calibration, "calibration"), shape, config, tuning=tuning)
    examples = (splits.validation or splits.train)[: config.golden_texts]
    golden = golden_examples(
        runner, manifest, encoder, [example.text_input for example in examples]
    )
    return manifest.model_copy(
        update={
            "operating_points": points,
            "default_point": default_point(points, config),
            "golden": golden,
        }
    )
