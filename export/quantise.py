"""Makes an int8 bundle of an fp32 one: quantise, choose stages, verify, calibrate anew, seal."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tqdm import tqdm

from export.calibrate import calibrated
from export.config import ExportConfig
from export.encode import encode_examples
from export.golden import golden_examples
from export.invariance import check_batch_invariance
from export.qdq import activation_ranges, write_int8
from export.seal import sealed_folder, write_manifest
from export.sensitivity import (
    StageCost,
    affordable,
    changed_labels,
    int8_file,
    keep_chosen,
    mixed,
    outputs_of,
    stage_costs,
)
from multi_exit.bundle import (
    Bundle,
    BundleManifest,
    GoldenExample,
    Provenance,
    file_digest,
    load_bundle,
)
from multi_exit.configuration import read_toml, validate
from multi_exit.errors import BundleError, ConfigurationError, VerificationError
from multi_exit.offline import check_golden
from multi_exit.outcome import ExitOutputs
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import EncodedText, TextInput
from training.checkpoint import WEIGHTS_FILE, load_manifest
from training.data import LabelledExample
from training.provenance import splits_of

_LIBRARIES = ("numpy", "onnx", "onnxruntime")


class QuantiseConfig(BaseModel):
    """Content of a quantisation configuration file (TOML). Every key has a default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    range_tokens: int = Field(
        4096, ge=1, description="tokens of validation texts whose activations set the ranges"
    )
    measured_texts: int = Field(
        1000, ge=1, description="validation texts on which int8 is compared with fp32, at most"
    )
    largest_stage_cost: float = Field(
        0.01,
        ge=0,
        le=1,
        description="a stage stays fp32 where int8 in it alone changes the full-depth label of "
        "more than this share of texts",
    )
    least_agreement: float = Field(
        0.95,
        ge=0,
        le=1,
        description="share of texts that must keep their fp32 label, at every exit",
    )


def load_quantise_config(path: Path) -> QuantiseConfig:
    """Reads a configuration. Raises ConfigurationError that names file and key."""
    return validate(QuantiseConfig, read_toml(path), path)


def quantise_bundle(
    bundle_path: Path, checkpoint_path: Path, target: Path, config: QuantiseConfig
) -> Bundle:
    """Makes an int8 bundle of an fp32 one. `target` appears whole, or not at all.

    Ranges, choice of stages and verification use validation texts; operating points are measured
    anew on the calibration split, with the settings that the fp32 bundle was exported with.
    Raises ConfigurationError for a bundle that is not fp32 or not of this checkpoint, and
    VerificationError where int8 answers otherwise too often, or depends on a row's neighbours.
    """
    source = load_bundle(bundle_path)
    trained = load_manifest(checkpoint_path)
    _check_origin(source, checkpoint_path, target)
    settings = _export_config(source.manifest)
    splits = splits_of(trained)
    encoder = source.text_encoder()
    examples = _spread(splits.validation or splits.train, config.measured_texts)
    encoded = encode_examples(encoder, examples, "validation")
    with sealed_folder(target) as folder:
        for name in source.manifest.files:
            shutil.copyfile(source.path / name, folder / name)
        draft = Bundle(folder, source.manifest, source.identifier)
        quantised = _quantise(draft, encoded, config)
        runner = StageRunner(quantised.bundle, provider="cpu", threads=0)
        check_batch_invariance(runner, draft.manifest, encoded)
        recalibrated = calibrated(draft.manifest, runner, encoder, splits, settings)
        texts = _clearest(examples, quantised.outputs, settings.golden_texts)
        golden = golden_examples(runner, draft.manifest, encoder, texts)
        tolerance = max(source.manifest.golden_tolerance, quantised.largest_difference)
        runner.close()
        keep_chosen(draft, quantised.stages)
        finished = recalibrated.model_copy(
            update={
                "precision": "int8",
                "golden": _only_clear(golden, 2 * tolerance),
                "golden_tolerance": tolerance,
                "provenance": _provenance(source, config, quantised),
            }
        )
        write_manifest(folder, lambda files: finished.model_copy(update={"files": files}))
        sealed = load_bundle(folder)
        # The sealed bytes are what is checked, not what they were made from.
        check_golden(StageRunner(sealed, provider="cpu", threads=0), sealed, encoder)
    return load_bundle(target)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quantised:
    """Graphs that were chosen, and what they answer on the validation texts.

    bundle: not sealed; some graphs fp32, some int8. stages: those in int8, counted from 1.
    largest_difference: of a logit from the fp32 one, over texts, exits and labels.
    """

    bundle: Bundle
    stages: frozenset[int]
    costs: tuple[StageCost, ...]
    outputs: ExitOutputs
    largest_difference: float


def _quantise(draft: Bundle, encoded: Sequence[EncodedText], config: QuantiseConfig) -> _Quantised:
    """Writes int8 graphs beside the fp32 ones, chooses stages, and holds them to their labels."""
    ranges = activation_ranges(draft, _of_tokens(encoded, config.range_tokens))
    for stage, covered in zip(draft.manifest.stages, ranges, strict=True):
        write_int8(draft.path / stage.file, covered, draft.path / int8_file(stage.file))
    reference = outputs_of(draft, encoded)
    costs = _measured_costs(draft, encoded, reference)
    chosen = _chosen(costs, config)
    bundle = mixed(draft, chosen)
    outputs = outputs_of(bundle, encoded)
    _check_agreement(outputs, reference, draft.manifest.exits, config)
    return _Quantised(
        bundle=bundle,
        stages=chosen,
        costs=costs,
        outputs=outputs,
        largest_difference=float(np.abs(outputs.logits - reference.logits).max()),
    )


def _check_origin(source: Bundle, checkpoint_path: Path, target: Path) -> None:
    manifest = source.manifest
    if target.resolve() == source.path.resolve():
        raise ConfigurationError(f"{target} is the fp32 bundle; the int8 one needs its own folder")
    if manifest.precision != "fp32":
        raise ConfigurationError(
            f"{source.path} is {manifest.precision}; int8 is made of an fp32 bundle"
        )
    weights = checkpoint_path / WEIGHTS_FILE
    sealed_from = manifest.provenance.checkpoint_sha256
    if not weights.is_file() or file_digest(weights) != sealed_from:
        raise ConfigurationError(
            f"{source.path} was not exported from {checkpoint_path}; name the checkpoint that it "
            "was exported from, whose configuration tells the validation and calibration texts"
        )


def _spread(examples: Sequence[LabelledExample], most: int) -> Sequence[LabelledExample]:
    """At most `most` examples, evenly over the whole: files are often sorted by label."""
    return examples[:: -(-len(examples) // most)]


def _of_tokens(encoded: Sequence[EncodedText], tokens: int) -> Sequence[EncodedText]:
    """Texts evenly over the whole with about `tokens` tokens together, or all."""
    total = sum(len(text) for text in encoded)
    return encoded[:: -(-total // tokens)]


def _measured_costs(
    draft: Bundle, encoded: Sequence[EncodedText], reference: ExitOutputs
) -> tuple[StageCost, ...]:
    stages = len(draft.manifest.stages)
    with tqdm(total=stages, desc="sensitivity", unit="stage", disable=None) as progress:
        costs = stage_costs(draft, encoded, reference, advanced=progress.update)
    for cost in costs:
        print(
            f"stage {cost.stage} in int8 alone changes {cost.changed_at_full_depth:.2%} of labels "
            f"at full depth, {cost.changed_labels:.2%} at the exit where most change; logits by "
            f"{cost.mean_logit_difference:.3f} on average"
        )
    return costs


def _chosen(costs: Sequence[StageCost], config: QuantiseConfig) -> frozenset[int]:
    chosen = affordable(costs, config.largest_stage_cost)
    if not chosen:
        raise VerificationError(
            f"every stage in int8 alone changes the label of more than "
            f"{config.largest_stage_cost:.2%} of texts at full depth (largest_stage_cost); "
            "nothing is left to quantise, serve the fp32 bundle"
        )
    kept = [str(cost.stage) for cost in costs if cost.stage not in chosen]
    print(
        f"{len(chosen)} of {len(costs)} stages become int8; fp32 stay: {', '.join(kept) or 'none'}"
    )
    return chosen


def _check_agreement(
    outputs: ExitOutputs, reference: ExitOutputs, exits: tuple[int, ...], config: QuantiseConfig
) -> None:
    """Raises VerificationError where int8 changed too many labels at any exit."""
    texts = len(outputs.logits)
    shares = dict(zip(exits, 1.0 - changed_labels(outputs, reference), strict=True))
    listed = ", ".join(f"{layer}: {share:.1%}" for layer, share in shares.items())
    print(f"int8 keeps the fp32 label of {texts} texts after layer {listed}")
    layer, least = min(shares.items(), key=lambda share: share[1])
    if least < config.least_agreement:
        raise VerificationError(
            f"int8 keeps the fp32 label of only {least:.1%} of {texts} texts after layer {layer} "
            f"(least_agreement is {config.least_agreement:.1%}); lower largest_stage_cost, so that "
            "more stages stay fp32, or accept less agreement"
        )


def _export_config(manifest: BundleManifest) -> ExportConfig:
    try:
        return ExportConfig.model_validate(manifest.provenance.calibration["config"])
    except (KeyError, ValidationError) as error:
        raise BundleError(
            f"the bundle does not tell how it was calibrated ({error}); export it anew"
        ) from error


def _clearest(
    examples: Sequence[LabelledExample], outputs: ExitOutputs, count: int
) -> list[TextInput]:
    """The texts whose labels are clearest at every exit."""
    rows = np.argsort(-_margins(outputs.logits), kind="stable")[:count]
    return [examples[row].text_input for row in rows]


def _only_clear(golden: Sequence[GoldenExample], margin: float) -> tuple[GoldenExample, ...]:
    """Examples whose labels no machine should change; at least the clearest.

    A last bit that another CPU computes otherwise moves a value near the border of two steps by a
    whole step: answers then differ within the noise of int8 (decision 040), and an example at the
    edge of two labels would refuse a good machine.
    """
    margins = _margins(np.array([example.logits for example in golden]))
    return tuple(
        example
        for example, found in zip(golden, margins, strict=True)
        if found > margin or found == margins.max()
    )


def _margins(logits: NDArray[np.floating]) -> NDArray[np.floating]:
    """Least distance over exits of the two largest logits; [texts, exits, K] -> [texts]."""
    ordered = np.sort(logits, axis=2)
    margins: NDArray[np.floating] = (ordered[:, :, -1] - ordered[:, :, -2]).min(axis=1)
    return margins


def _provenance(source: Bundle, config: QuantiseConfig, quantised: _Quantised) -> Provenance:
    """The fp32 bundle's, with how it was quantised."""
    before = source.manifest.provenance
    quantisation = {
        "from_bundle": source.identifier,
        "config": config.model_dump(mode="json"),
        "int8_stages": sorted(quantised.stages),
        "stage_costs": [cost.model_dump(mode="json") for cost in quantised.costs],
    }
    return before.model_copy(
        update={
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "library_versions": before.library_versions
            | {name: version(name) for name in _LIBRARIES},
            "calibration": before.calibration | {"int8": quantisation},
        }
    )
