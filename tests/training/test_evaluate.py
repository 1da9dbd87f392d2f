"""Evaluation: reports from known outputs, and texts in whatever order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from multi_exit.errors import DataError
from multi_exit.outcome import ExitOutputs
from multi_exit.text_encoder import TextEncoder
from tests.conftest import toy_rows, write_csv
from tests.training.models import small_config
from training.checkpoint import load_checkpoint
from training.evaluate import (
    CURVE_THRESHOLDS,
    encode_split,
    evaluate_checkpoint,
    make_report,
    run_every_exit,
)
from training.provenance import splits_of
from training.train import train

# Two exits of 1 and 4 layers, two labels, three texts; the first exit is sure of the first text.
LOGITS = np.array(
    [[[9.0, -9.0], [5.0, 0.0]], [[0.1, 0.0], [0.0, 5.0]], [[0.0, 0.2], [0.0, 5.0]]],
    dtype=np.float32,
)
ENTROPY = np.array([[0.01, 0.0], [0.99, 0.0], [0.98, 0.0]], dtype=np.float32)
LABELS = np.array([0, 1, 0])


def test_a_report_of_known_outputs() -> None:
    report = make_report(ExitOutputs(LOGITS, ENTROPY), LABELS, (1, 4), ("accuracy", "f1"))
    assert report.metric == "accuracy"
    assert report.scores["accuracy"] == pytest.approx((1 / 3, 2 / 3))
    assert report.scores["f1"] == pytest.approx((0.0, 2 / 3))
    assert report.quality_speed[0] == (4.0, pytest.approx(2 / 3))
    assert (2 * 4 / 3 + 1 / 3, pytest.approx(2 / 3)) in report.quality_speed
    assert report.quality_speed[-1] == (1.0, pytest.approx(1 / 3))
    assert "f1 by exit" in report.table()


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_batches_do_not_change_what_exits_say(toy_checkpoint: Path, batch_size: int) -> None:
    checkpoint = load_checkpoint(toy_checkpoint)
    examples = splits_of(checkpoint.manifest).test[:20]
    encoder = TextEncoder.from_file(checkpoint.tokenizer_file, max_length=64)
    split = encode_split(encoder, examples, checkpoint.manifest.labels, "test")
    device = torch.device("cpu")
    found = run_every_exit(checkpoint.model, split, device, batch_size=batch_size)
    assert found.logits.shape == (20, 3, 3)
    for row, text in enumerate(split.texts):
        with torch.no_grad():
            alone = checkpoint.model(
                torch.from_numpy(text.token_ids)[None], torch.ones(1, len(text), dtype=torch.int64)
            ).logits[:, 0]
        torch.testing.assert_close(torch.from_numpy(found.logits[row]), alone, atol=1e-5, rtol=1e-4)
        probabilities = alone.double().softmax(dim=-1)
        entropy = -(probabilities * probabilities.log()).sum(dim=-1) / np.log(3)
        assert found.entropy[row] == pytest.approx(entropy.numpy(), abs=1e-5)


def test_a_split_that_was_not_configured_is_named(
    few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    config = small_config(few_texts, tiny_bert, run={"epochs": 1})
    path = train(config, tmp_path / "run").path
    assert evaluate_checkpoint(path, "train").samples == 56
    with pytest.raises(DataError, match=r"has no test split; set data\.test"):
        evaluate_checkpoint(path, "test")


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**31),
    texts=st.integers(1, 12),
    exits=st.lists(st.integers(1, 12), min_size=1, max_size=5, unique=True).map(sorted),
    classes=st.integers(2, 5),
)
def test_the_curve_equals_a_loop_over_texts_and_falls_in_layers(
    seed: int, texts: int, exits: list[int], classes: int
) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((texts, len(exits), classes)).astype(np.float32)
    entropy = rng.choice([0.0, 0.01, 0.5, 1.0], size=(texts, len(exits))).astype(np.float32)
    labels = rng.integers(classes, size=texts)
    report = make_report(ExitOutputs(logits, entropy), labels, tuple(exits), ("accuracy",))
    assert report.samples == texts
    for threshold, (layers, quality) in zip(CURVE_THRESHOLDS, report.quality_speed, strict=True):
        run, right = 0, 0
        for text in range(texts):
            for index, layer in enumerate(exits):
                if entropy[text, index] < threshold or index == len(exits) - 1:
                    run += layer
                    right += int(logits[text, index].argmax() == labels[text])
                    break
        assert layers == pytest.approx(run / texts)
        assert quality == pytest.approx(right / texts)
    layers_run = [layers for layers, _ in report.quality_speed]
    assert layers_run[0] == exits[-1], "threshold 0 is full depth"
    assert layers_run == sorted(layers_run, reverse=True)
    for index in range(len(exits)):
        right = sum(int(logits[text, index].argmax() == labels[text]) for text in range(texts))
        assert report.scores_by_exit[index] == pytest.approx(right / texts)


def test_a_model_in_training_mode_is_evaluated_without_dropout(toy_checkpoint: Path) -> None:
    checkpoint = load_checkpoint(toy_checkpoint)
    examples = splits_of(checkpoint.manifest).test[:8]
    encoder = TextEncoder.from_file(checkpoint.tokenizer_file, max_length=64)
    split = encode_split(encoder, examples, checkpoint.manifest.labels, "test")
    device = torch.device("cpu")
    expected = run_every_exit(checkpoint.model, split, device)
    checkpoint.model.train()
    found = run_every_exit(checkpoint.model, split, device)
    np.testing.assert_array_equal(found.logits, expected.logits)


def test_texts_are_scored_in_the_unicode_form_that_was_trained(
    tiny_bert: Path, tmp_path: Path
) -> None:
    # Full-width letters are known words in NFKC only.
    wide = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(ord("a"), ord("z") + 1)})
    rows = [(text.translate(wide), label) for text, label in toy_rows(80, seed=5)]
    path = write_csv(tmp_path / "train.csv", rows)
    config = small_config(
        path, tiny_bert, model={"unicode_form": "NFKC"}, run={"epochs": 4}, data={"test": 0.1}
    )
    report = train(config, tmp_path / "run")
    found = evaluate_checkpoint(report.path, "validation").scores_by_exit
    assert found == report.manifest.scores_by_exit
    assert len(set(found)) > 1 or found[0] > 0.5, "else it says nothing"
