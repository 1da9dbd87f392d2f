"""The way from a checkpoint to a sealed bundle, step by step."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tqdm import tqdm

from export.calibrate import calibrated
from export.config import ExportConfig
from export.encode import encode_examples, label_indices
from export.evaluate import BundleReport, evaluate_bundle
from export.graphs import fuse, stage_spans, write_merge, write_stage
from export.seal import sealed_folder, write_manifest
from export.verify import verify
from multi_exit.batch import default_buckets
from multi_exit.bundle import (
    MANIFEST_FILE,
    Bundle,
    BundleManifest,
    Provenance,
    StageEntry,
    file_digest,
    load_bundle,
)
from multi_exit.errors import DataError
from multi_exit.offline import check_golden
from multi_exit.runner import StageRunner
from training.checkpoint import WEIGHTS_FILE, Checkpoint, load_checkpoint
from training.data import Splits
from training.provenance import splits_of

_MERGE_FILE = "merge.onnx"
_TOKENIZER_FILE = "tokenizer.json"
_LIBRARIES = ("numpy", "onnx", "onnxruntime", "onnxscript", "tokenizers", "torch", "transformers")
_VERIFIED_TEXTS = 256


def export_bundle(checkpoint_path: Path, target: Path, config: ExportConfig) -> Bundle:
    """Exports, verifies, calibrates and seals. `target` appears whole, or not at all.

    Data comes from the checkpoint's own configuration: verified on validation texts, calibrated
    on the calibration split. Raises VerificationError where the graphs compute otherwise than the
    checkpoint, and DataError where there is no calibration split.
    """
    checkpoint = load_checkpoint(checkpoint_path)
    splits = splits_of(checkpoint.manifest)
    if not splits.calibration:
        raise DataError(
            "the training configuration keeps no calibration split; set data.calibration to a "
            "share of the training texts or to a file that training does not see"
        )
    with sealed_folder(target) as folder:
        stages = _write_graphs(checkpoint, folder)
        shutil.copyfile(checkpoint.tokenizer_file, folder / _TOKENIZER_FILE)
        manifest = _draft(checkpoint, config, stages, splits)
        write_manifest(folder, lambda files: manifest.model_copy(update={"files": files}))
        draft = load_bundle(folder)
        encoder = draft.text_encoder()
        runner = StageRunner(draft, provider="cpu", threads=0)
        trusted = encode_examples(
            encoder, (splits.validation or splits.train)[:_VERIFIED_TEXTS], "verification"
        )
        verification = verify(
            checkpoint.model, runner, draft.manifest, trusted, tolerance=config.tolerance
        )
        print(
            f"verified {verification.rows} rows in {verification.batches} batches against torch: "
            f"logits within {verification.largest_logit_difference:.1e}, entropy within "
            f"{verification.largest_entropy_difference:.1e}"
        )
        finished = calibrated(draft.manifest, runner, encoder, splits, config)
        (folder / MANIFEST_FILE).unlink()
        write_manifest(folder, lambda files: finished.model_copy(update={"files": files}))
        # The sealed bytes are what is checked, not what they were made from.
        check_golden(runner, load_bundle(folder), encoder)
    return load_bundle(target)


def evaluate_on_test(checkpoint_path: Path, bundle: Bundle) -> BundleReport:
    """Scores a bundle on the test split of the configuration its checkpoint was trained from."""
    checkpoint = load_checkpoint(checkpoint_path)
    splits = splits_of(checkpoint.manifest)
    if not splits.test:
        raise DataError("the training configuration names no test split; set data.test")
    encoder = bundle.text_encoder()
    encoded = encode_examples(encoder, splits.test, "test")
    runner = StageRunner(bundle, provider="cpu", threads=0)
    with tqdm(total=len(encoded), desc="test", unit="text", disable=None) as progress:
        return evaluate_bundle(
            bundle,
            runner,
            encoded,
            label_indices(splits.test, bundle.manifest.labels),
            advanced=progress.update,
        )


def _write_graphs(checkpoint: Checkpoint, folder: Path) -> tuple[StageEntry, ...]:
    model = checkpoint.model.eval()
    entries = []
    spans = stage_spans(checkpoint.manifest.exits)
    for span in tqdm(spans, desc="export", unit="stage", disable=None):
        path = folder / f"stage_{span.exit_index + 1:02d}.onnx"
        write_stage(model, span, last=span is spans[-1], path=path)
        fuse(path, heads=model.attention_heads, hidden_size=model.hidden_size)
        entries.append(
            StageEntry(file=path.name, first_layer=span.first_layer, exit_layer=span.exit_layer)
        )
    write_merge(model.hidden_size, folder / _MERGE_FILE)
    return tuple(entries)


def _draft(
    checkpoint: Checkpoint, config: ExportConfig, stages: tuple[StageEntry, ...], splits: Splits
) -> BundleManifest:
    trained = checkpoint.manifest
    weights = file_digest(checkpoint.path / WEIGHTS_FILE)
    # Files, operating points and golden examples come later, so it is not validated yet.
    return BundleManifest.model_construct(
        files={},
        name=config.name,
        labels=trained.labels,
        layers=trained.layers,
        exits=trained.exits,
        hidden_size=checkpoint.model.hidden_size,
        max_length=trained.max_length,
        length_buckets=config.length_buckets or default_buckets(trained.max_length),
        pad_token_id=checkpoint.model.pad_token_id,
        unicode_form=trained.unicode_form,
        takes_pairs=trained.takes_pairs,
        precision="fp32",
        model_inputs=checkpoint.model.input_names,
        tokenizer_file=_TOKENIZER_FILE,
        merge_file=_MERGE_FILE,
        stages=stages,
        golden_tolerance=max(1e-3, config.tolerance),
        provenance=Provenance(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            checkpoint_sha256=weights,
            training_configuration=trained.configuration.model_dump(mode="json"),
            data_sha256=splits.fingerprints,
            library_versions={name: version(name) for name in _LIBRARIES},
            calibration={
                "texts": len(splits.calibration),
                "config": config.model_dump(mode="json"),
            },
        ),
    )
