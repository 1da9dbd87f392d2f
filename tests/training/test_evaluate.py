"""Evaluation: reports from known outputs, and texts in whatever order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from multi_exit.errors import DataError
from multi_exit.outcome import ExitOutputs
from multi_exit.text_encoder import TextEncoder
from tests.training.models import small_config
from training.checkpoint import load_checkpoint
from training.evaluate import encode_split, evaluate_checkpoint, make_report, run_every_exit
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
