"""The report of a real tiny checkpoint: its numbers are those of the evaluation."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from multi_exit.errors import ConfigurationError
from multi_exit.text_encoder import TextEncoder
from training.checkpoint import load_checkpoint
from training.evaluate import evaluate_checkpoint
from training.history import HISTORY_FILE
from training.provenance import splits_of
from training.report import report_checkpoint


@pytest.fixture(scope="module")
def report(toy_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the report on the toy checkpoint's test texts, mapped at exit 2."""
    output = tmp_path_factory.mktemp("report") / "toy"
    return report_checkpoint(toy_checkpoint, "test", output, exit_layer=2).page.parent


@pytest.fixture(scope="module")
def answers(toy_checkpoint: Path) -> tuple[np.ndarray, list[str], list[int]]:
    """Probabilities [texts, exits, K] in float64, true labels and lengths, text by text."""
    checkpoint = load_checkpoint(toy_checkpoint)
    encoder = TextEncoder.from_file(checkpoint.tokenizer_file, max_length=64)
    chances, labels, lengths = [], [], []
    for example in splits_of(checkpoint.manifest).test:
        tokens = torch.from_numpy(encoder.encode(example.text_input).token_ids)[None]
        with torch.no_grad():
            logits = checkpoint.model(tokens, torch.ones_like(tokens)).logits[:, 0]
        chances.append(logits.double().softmax(dim=-1).numpy())
        labels.append(example.label)
        lengths.append(tokens.shape[1])
    return np.array(chances), labels, lengths


def rows_of(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_scores_and_curve_are_those_of_the_evaluation(report: Path, toy_checkpoint: Path) -> None:
    evaluation = evaluate_checkpoint(toy_checkpoint, "test")
    found = [float(row["mean"]) for row in rows_of(report, "layer_scores")]
    assert found == pytest.approx(evaluation.scores_by_exit, abs=1e-6)
    curve = rows_of(report, "quality_speed")
    assert float(curve[-1]["average_layers"]) == 3.0
    assert float(curve[-1]["mean"]) == pytest.approx(evaluation.scores_by_exit[-1], abs=1e-6)
    assert {row["rule"] for row in rows_of(report, "exit_rules")} == set(evaluation.exit_rules)


def test_the_calibration_error_equals_a_slow_loop(
    report: Path, toy_checkpoint: Path, answers: tuple[np.ndarray, list[str], list[int]]
) -> None:
    chances, labels, _ = answers
    names = load_checkpoint(toy_checkpoint).manifest.labels
    for index, row in enumerate(rows_of(report, "calibration_error")):
        bins: dict[int, list[tuple[float, bool]]] = {}
        for text, label in zip(chances[:, index], labels, strict=True):
            confidence = float(text.max())
            place = next(b for b in range(15) if confidence <= (b + 1) / 15)
            bins.setdefault(place, []).append((confidence, names[int(text.argmax())] == label))
        error = sum(
            abs(sum(right for _, right in inside) - sum(c for c, _ in inside))
            for inside in bins.values()
        ) / len(labels)
        # A float32 confidence beside a border may fall on its other side: one text of 300.
        assert float(row["expected_calibration_error"]) == pytest.approx(error, abs=0.004)


def test_shares_that_leave_equal_a_loop_over_texts(
    report: Path, answers: tuple[np.ndarray, list[str], list[int]]
) -> None:
    chances, labels, lengths = answers
    entropies = -(chances * np.log(chances)).sum(axis=-1) / np.log(3)
    (policy,) = rows_of(report, "leaving_policy")
    threshold = float(policy["entropy_threshold"])
    taken = [
        next((index for index, value in enumerate(text) if value < threshold), 2)
        for text in entropies
    ]
    for row in rows_of(report, "leaving_by_class"):
        own = [t for t, label in zip(taken, labels, strict=True) if label == row["group"]]
        assert int(row["texts"]) == len(own)
        for index in range(3):
            # An entropy in float32 may fall on the threshold's other side: one text.
            assert float(row[f"exit_{index + 1}"]) == pytest.approx(
                own.count(index) / len(own), abs=1.5 / len(own)
            )
    assert float(policy["average_layers"]) == pytest.approx(np.mean(taken) + 1, abs=0.01)
    assert 1.3 < float(policy["average_layers"]) < 1.7, "about half of three layers"
    by_length = rows_of(report, "leaving_by_length")
    assert sum(int(row["texts"]) for row in by_length) == len(labels)
    for row in by_length:
        low, *_, high = [int(word) for word in row["group"].split() if word.isdigit()] * 2
        assert int(row["texts"]) == sum(low <= length <= high for length in lengths)


def test_the_page_holds_every_picture_and_no_address(report: Path) -> None:
    html = (report / "report.html").read_text(encoding="utf-8")
    assert "acl-cl on toy-data" in html
    assert "300 texts of the test split, 3 labels, 3 exits in 3 layers, seed 7" in html
    assert "Representations at exit 2" in html
    assert html.count("<svg") == 6
    assert "//" not in html
    stars = [r for r in rows_of(report, "representation_map") if r["kind"] == "label embedding"]
    assert [row["label"] for row in stars] == ["food", "music", "weather"]
    assert not (report / "angles.csv").exists(), "training measured no angles"


def test_angles_are_drawn_where_training_measured_them(
    toy_checkpoint: Path, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    shutil.copytree(toy_checkpoint, path)
    measured = {"contrastive_degrees": [80.0, 95.0, 100.0], "teacher_degrees": None}
    line = {"kind": "angles", "step": 4, "representation": measured, "parameters": measured}
    with (path / HISTORY_FILE).open("a") as file:
        file.write(json.dumps(line) + "\n")
    folder = report_checkpoint(path, "validation", tmp_path / "report").page.parent
    assert (folder / "angle_histogram.svg").exists()
    assert (folder / "angle_curve.png").exists()
    shares = [float(row["share_above_90"]) for row in rows_of(folder, "angles")]
    assert shares == [0.0, 1.0, 1.0, 0.0]
    assert "Representations at exit 3" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_layer_without_an_exit_and_a_split_without_texts_are_named(
    toy_checkpoint: Path, tmp_path: Path
) -> None:
    for layer in (0, 4):
        with pytest.raises(ConfigurationError, match=rf"layer {layer} has no exit.*\[1, 2, 3\]"):
            report_checkpoint(toy_checkpoint, "test", tmp_path / "out", exit_layer=layer)
    assert not (tmp_path / "out").exists()
