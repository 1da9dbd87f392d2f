"""A new bundle with other operating points: the same graphs, calibrated on other texts.

Needs what the serving image has, onnxruntime and tokenizers; from a shadow log not even those.
Nothing is trained and no graph is changed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from export.config import ExportConfig
from export.encode import label_indices
from export.operator_texts import OperatorTexts
from export.seal import sealed_folder, write_manifest
from export.shadow_rows import ShadowRows
from multi_exit.bundle import Bundle, load_bundle
from multi_exit.calibration import (
    FEWEST_TUNING_TEXTS,
    CalibrationConfig,
    LabelledOutputs,
    ModelShape,
    calibrate,
    default_point,
)
from multi_exit.certification import fewest_texts
from multi_exit.errors import ConfigurationError, DataError, TextError
from multi_exit.text_encoder import EncodedText, TextEncoder

if TYPE_CHECKING:
    from multi_exit.runner import ProviderChoice

_LIBRARIES = ("numpy", "onnxruntime", "tokenizers")
_TIMED_TEXTS = 50


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """What every exit says about the texts to calibrate on, and where those come from.

    stage_seconds: what each stage takes for one text, where it was measured. source: for the
    provenance. notes: what the operator should know, each a sentence.
    """

    texts: LabelledOutputs
    stage_seconds: tuple[float, ...] | None
    source: dict[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalibrated:
    """The new bundle. notes: what the operator should know, each a sentence."""

    bundle: Bundle
    notes: tuple[str, ...]


def configuration_of(bundle: Bundle) -> ExportConfig:
    """What the bundle was calibrated with; the defaults where it does not tell."""
    try:
        return ExportConfig.model_validate(bundle.manifest.provenance.calibration["config"])
    except (KeyError, ValidationError):
        return ExportConfig()


def evidence_of_texts(
    bundle: Bundle,
    texts: OperatorTexts,
    *,
    provider: ProviderChoice = "auto",
    threads: int = 0,
    advanced: Callable[[int], object] = lambda rows: None,
) -> Evidence:
    """Runs the texts through every exit of the graphs that serve.

    Raises DataError for a label that the bundle does not know, a text that cannot be encoded and
    pairs where there should be none, and BundleError where the golden examples come out otherwise.
    """
    from multi_exit.offline import check_golden, every_exit, stage_seconds
    from multi_exit.runner import StageRunner

    manifest = bundle.manifest
    labels = label_indices(texts.examples, manifest.labels) if texts.labelled else None
    encoder = bundle.text_encoder()
    encoded = _encode(encoder, texts, takes_pairs=manifest.takes_pairs)
    runner = StageRunner(bundle, provider=provider, threads=threads)
    check_golden(runner, bundle, encoder)
    outputs = every_exit(runner, manifest, encoded, advanced=advanced)
    notes = []
    if texts.dropped:
        contradicted = (
            f", {texts.contradicted:,} of them under another label" if texts.contradicted else ""
        )
        notes.append(
            f"{texts.dropped:,} rows repeat an earlier text{contradicted}; each text was counted "
            "once, since repeats make certificates too optimistic"
        )
    return Evidence(
        texts=LabelledOutputs(outputs, labels),
        stage_seconds=stage_seconds(runner, manifest, encoded[:_TIMED_TEXTS]),
        source={
            "kind": "texts",
            "sha256": texts.sha256,
            "labelled": texts.labelled,
            "repeated_rows": texts.dropped,
        },
        notes=tuple(notes),
    )


def evidence_of_shadow(rows: ShadowRows) -> Evidence:
    """What a shadow log holds. Without texts there are neither labels nor times."""
    notes = []
    if rows.foreign:
        notes.append(f"{rows.foreign:,} rows of other bundles were left out")
    if len(rows.shares) > 1:
        notes.append(
            f"rows were sampled at different shares ({', '.join(f'{s:g}' for s in rows.shares)}): "
            "times of a larger share count for more than they should"
        )
    return Evidence(
        texts=LabelledOutputs(rows.answers),
        stage_seconds=None,
        source={
            "kind": "shadow",
            "sha256": rows.sha256,
            "labelled": False,
            "rows_of_other_bundles": rows.foreign,
            "sampled": list(rows.shares),
        },
        notes=tuple(notes),
    )


def recalibrate(
    bundle: Bundle,
    evidence: Evidence,
    target: Path,
    config: ExportConfig,
    *,
    tune_share: float = 0.3,
    seed: int = 0,
) -> Recalibrated:
    """Calibrates and seals a new folder; `target` appears whole, or not at all.

    tune_share: share of the texts, drawn by `seed`, that places thresholds and is not used by
    certificates. Raises ConfigurationError for a target that is the bundle itself or a folder that
    is no bundle, and DataError for too few texts to certify anything.
    """
    if target.resolve() == bundle.path.resolve():
        raise ConfigurationError(f"{target} is the bundle itself; the new one needs its own folder")
    if not 0.0 <= tune_share < 1.0:
        raise ConfigurationError(f"the tune share must lie in [0, 1); got {tune_share:g}")
    shape = ModelShape(
        label_names=bundle.manifest.labels,
        exits=bundle.manifest.exits,
        stage_seconds=evidence.stage_seconds,
    )
    tuned = _tuning_texts(len(evidence.texts), tune_share)
    notes = [*evidence.notes, *_warnings(len(evidence.texts), tuned, tune_share, config)]
    order = np.random.default_rng(seed).permutation(len(evidence.texts))
    tuning = evidence.texts.rows(np.sort(order[:tuned])) if tuned else None
    certifying = evidence.texts.rows(np.sort(order[tuned:]))
    points = calibrate(certifying, shape, config, tuning=tuning)
    provenance = bundle.manifest.provenance
    origin = {
        "from_bundle": bundle.identifier,
        **evidence.source,
        "certifying_texts": len(certifying),
        "tuning_texts": tuned,
        "tune_share": tune_share,
        "seed": seed,
    }
    manifest = bundle.manifest.model_copy(
        update={
            "operating_points": points,
            "default_point": default_point(points, config),
            "provenance": provenance.model_copy(
                update={
                    "created": datetime.now(UTC).isoformat(timespec="seconds"),
                    "library_versions": provenance.library_versions | _versions(),
                    "calibration": provenance.calibration
                    | {
                        "texts": len(certifying),
                        "config": config.model_dump(mode="json"),
                        "recalibrated": origin,
                    },
                }
            ),
        }
    )
    with sealed_folder(target) as folder:
        for name in bundle.manifest.files:
            _link(bundle.path / name, folder / name)
        write_manifest(folder, lambda files: manifest.model_copy(update={"files": files}))
        # Nothing but the manifest may differ: the graphs are those that were measured.
        if load_bundle(folder).manifest.files != bundle.manifest.files:
            raise DataError(f"files of {bundle.path} changed while it was calibrated; start again")
    return Recalibrated(bundle=load_bundle(target), notes=tuple(notes))


def _encode(encoder: TextEncoder, texts: OperatorTexts, *, takes_pairs: bool) -> list[EncodedText]:
    first = texts.examples[0]
    if takes_pairs and first.text_pair is None:
        raise DataError("the bundle judges pairs of texts; name the second column (--pair-column)")
    if not takes_pairs and first.text_pair is not None:
        raise DataError("the bundle judges single texts; leave --pair-column out")
    encoded = []
    for example in texts.examples:
        try:
            encoded.append(encoder.encode(example.text_input))
        except TextError as error:
            raise DataError(f"{example.origin}: {error}") from error
    return encoded


def _tuning_texts(texts: int, share: float) -> int:
    """How many texts tune: none where they are too few to place a threshold for every exit."""
    wanted = round(share * texts)
    return wanted if wanted >= FEWEST_TUNING_TEXTS else 0


def _warnings(texts: int, tuned: int, share: float, config: CalibrationConfig) -> Sequence[str]:
    """What cannot be promised with so few texts. Raises DataError where that is everything."""
    certifying = texts - tuned
    needed = {epsilon: fewest_texts(epsilon, config.delta) for epsilon in config.epsilons}
    loosest = max(needed)
    if certifying < needed[loosest]:
        raise DataError(
            f"{certifying:,} texts are too few to certify anything: {100 * loosest:g} % at "
            f"{100 * (1 - config.delta):g} % confidence takes {needed[loosest]:,} even if no label "
            "changes; " + ", ".join(f"{100 * e:g} % takes {n:,}" for e, n in needed.items())
        )
    found = [
        f"{certifying:,} certifying texts cannot promise {100 * epsilon:g} %: that takes at least "
        f"{fewest:,}"
        for epsilon, fewest in needed.items()
        if certifying < fewest
    ]
    if share and not tuned and config.thresholds_by_exit:
        found.append(
            f"{share:.0%} of {texts:,} texts is less than the {FEWEST_TUNING_TEXTS} that place a "
            "threshold for every exit; all exits share one, and all texts certify"
        )
    return found


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            # onnxruntime-gpu brings the same module under another name.
            continue
    return found


def _link(source: Path, target: Path) -> None:
    """A second name for the same file, or a copy where the file system has no such thing."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
