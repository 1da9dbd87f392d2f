"""The way from checkpoint to bundle, for every family, and that it is all there or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.build import evaluate_on_test, export_bundle, label_indices
from export.config import ExportConfig
from multi_exit.batch import pad_batch
from multi_exit.bundle import Bundle, load_bundle
from multi_exit.errors import DataError, VerificationError
from multi_exit.offline import check_golden, every_exit
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import TextInput
from training.config import TrainingConfig
from training.data import LabelledExample
from training.train import train

FAMILIES = ("bert", "roberta", "xlm-roberta", "electra", "distilbert", "mpnet")


def _trained(folder: Path, backbone: Path, toy_data: Path, **model: Any) -> Path:
    config = TrainingConfig.model_validate(
        {
            "data": {"train": toy_data / "train.csv", "test": toy_data / "test.csv"},
            "model": {"backbone": str(backbone), "max_length": 48, **model},
            "run": {"epochs": 1, "precision": "fp32", "threads": 1},
        }
    )
    train(config, folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_exports_and_answers_as_in_torch(
    family: str, make_backbone: Any, toy_data: Path, tmp_path: Path
) -> None:
    checkpoint = _trained(tmp_path / "checkpoint", make_backbone(family), toy_data)
    # Verification against torch is part of the export: padded batches, several shapes.
    bundle = export_bundle(checkpoint, tmp_path / "bundle", ExportConfig())
    expects_types = family in ("bert", "electra")
    assert ("token_type_ids" in bundle.manifest.model_inputs) is expects_types
    runner = StageRunner(bundle, provider="cpu", threads=1)
    check_golden(runner, bundle, bundle.text_encoder())


def test_chosen_exits_and_fewer_layers_make_fewer_stages(
    make_backbone: Any, toy_data: Path, tmp_path: Path
) -> None:
    checkpoint = _trained(
        tmp_path / "checkpoint",
        make_backbone("bert"),
        toy_data,
        layers=2,
        repeat_layers=2,
        exits=[1, 4],
        pooling="attention",
    )
    manifest = export_bundle(checkpoint, tmp_path / "bundle", ExportConfig()).manifest
    spans = [(stage.first_layer, stage.exit_layer) for stage in manifest.stages]
    assert spans == [(1, 1), (2, 4)]
    assert manifest.layers == 4


def test_graphs_that_compute_otherwise_are_refused_and_nothing_is_left(
    toy_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The real verifier against really wrong graphs: exits trained for one label order, another
    # classifier in the checkpoint that they are compared with.
    from export import build

    real = build.verify

    def against_another(model: Any, *arguments: Any, **options: Any) -> Any:
        model.heads[1].classifier.weight.data.neg_()
        return real(model, *arguments, **options)

    monkeypatch.setattr(build, "verify", against_another)
    with pytest.raises(VerificationError, match="exit 2"):
        export_bundle(toy_checkpoint, tmp_path / "bundle", ExportConfig())
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_says_where_it_comes_from(toy_bundle: Bundle, toy_checkpoint: Path) -> None:
    provenance = toy_bundle.manifest.provenance
    trained = json.loads((toy_checkpoint / "checkpoint.json").read_text())
    assert provenance.training_configuration == trained["configuration"]
    assert provenance.data_sha256 == trained["data_sha256"]
    assert {"torch", "onnxruntime", "transformers"} <= provenance.library_versions.keys()


def test_operating_points_were_measured_on_the_calibration_split(toy_bundle: Bundle) -> None:
    manifest = toy_bundle.manifest
    points = {point.name: point for point in manifest.operating_points}
    assert points["full-depth"].speedup == 1.0
    assert points["full-depth"].agreement == 1.0
    assert {point.samples for point in points.values()} == {270}  # 30 % of 900
    thresholds = [point.thresholds[0] for point in manifest.operating_points]
    layers = [point.average_layers for point in manifest.operating_points]
    assert thresholds == sorted(thresholds)
    assert layers == sorted(layers, reverse=True)
    assert manifest.default_point in points


def test_the_test_report_agrees_with_running_the_texts_by_hand(
    toy_bundle: Bundle, toy_checkpoint: Path, toy_data: Path
) -> None:
    from training.data.tables import read_table

    report = evaluate_on_test(toy_checkpoint, toy_bundle)
    examples = read_table(
        toy_data / "test.csv", text_column="text", label_column="label", text_pair_column=None
    )
    encoder = toy_bundle.text_encoder()
    runner = StageRunner(toy_bundle, provider="cpu", threads=1)
    right = np.zeros(len(toy_bundle.manifest.exits))
    for example in examples:
        encoded = [encoder.encode(TextInput(example.text))]
        outputs = every_exit(runner, toy_bundle.manifest, encoded)
        right += [toy_bundle.manifest.labels[label] == example.label for label in outputs.labels[0]]
    accuracies = [score.accuracy for score in report.exits]
    np.testing.assert_allclose(accuracies, right / len(examples))
    assert report.samples == len(examples)
    for policy in report.policies:
        assert sum(policy.share_by_exit) == pytest.approx(1.0)


def test_a_toy_model_learns_and_leaves_at_different_exits(
    toy_bundle: Bundle, toy_checkpoint: Path
) -> None:
    report = evaluate_on_test(toy_checkpoint, toy_bundle)
    assert report.exits[-1].accuracy > 0.9
    assert any(sum(share > 0 for share in p.share_by_exit) >= 2 for p in report.policies)


@pytest.mark.parametrize(("rows", "length"), [(1, 3), (3, 7), (17, 33), (64, 64)])
def test_answers_do_not_depend_on_neighbours_to_the_bit(
    toy_bundle: Bundle, rows: int, length: int
) -> None:
    encoder = toy_bundle.text_encoder()
    runner = StageRunner(toy_bundle, provider="cpu", threads=2)
    words = "rain drum bread the some".split()
    texts = [encoder.encode(TextInput(" ".join(words[: 1 + row % 5]))) for row in range(rows)]
    texts = [text for text in texts if len(text) <= length]
    together = runner.start(pad_batch(texts, length, toy_bundle.manifest.pad_token_id))
    for row, text in enumerate(texts):
        alone = runner.start(pad_batch([text], length, toy_bundle.manifest.pad_token_id))
        np.testing.assert_array_equal(alone.logits[0], together.logits[row])
        assert together.state is not None
        assert alone.state is not None
        deep = runner.advance(2, together.state, np.array([row]))
        np.testing.assert_array_equal(
            runner.advance(2, alone.state, np.array([0])).logits[0], deep.logits[0]
        )


def test_an_unknown_label_is_named() -> None:
    with pytest.raises(DataError, match="'cat'"):
        label_indices([LabelledExample("a text", "cat")], ("dog", "bird"))


def test_a_configuration_without_calibration_split_is_refused(
    make_backbone: Any, toy_data: Path, tmp_path: Path, toy_checkpoint: Path
) -> None:
    copy = tmp_path / "checkpoint"
    shutil.copytree(toy_checkpoint, copy)
    manifest = json.loads((copy / "checkpoint.json").read_text())
    manifest["configuration"]["data"]["calibration"] = None
    (copy / "checkpoint.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="calibration"):
        export_bundle(copy, tmp_path / "bundle", ExportConfig())


def test_a_bundle_can_be_copied_and_loads_elsewhere(toy_bundle: Bundle, tmp_path: Path) -> None:
    shutil.copytree(toy_bundle.path, tmp_path / "copy")
    assert load_bundle(tmp_path / "copy").identifier == toy_bundle.identifier
