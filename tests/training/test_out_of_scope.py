"""Texts of no label: measures of every exit, on a real checkpoint and on outputs made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from cli.main import main
from multi_exit.confidence import maximum_doubt
from multi_exit.errors import DataError
from multi_exit.outcome import ExitOutputs
from training.out_of_scope import MEASURES, compare_measures, evaluate_out_of_scope


def _outputs(sure: float, texts: int, seed: int) -> ExitOutputs:
    """Two exits; the second tells more. Distances say nothing at the first, all at the last."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(texts, 2, 4)).astype(np.float32)
    logits[:, 1, 0] += sure
    distance = np.stack([rng.random(texts), np.full(texts, 0.5 - sure / 100)], axis=1)
    return ExitOutputs(logits, np.zeros((texts, 2), dtype=np.float32), distance)


def test_every_measure_is_judged_at_every_exit() -> None:
    inside, outside = _outputs(5.0, 60, 0), _outputs(0.0, 40, 1)
    report = compare_measures(inside, outside, (2, 4), draws=50, seed=0)
    assert (report.in_scope, report.out_of_scope) == (60, 40)
    assert [(row.exit_layer, row.measure) for row in report.rows] == [
        (layer, measure) for layer in (2, 4) for measure in MEASURES
    ]
    truth = np.array([0] * 60 + [1] * 40)
    for index, base in enumerate((report.rows[0], report.rows[3])):
        doubts = [maximum_doubt(side.logits[:, index]) for side in (inside, outside)]
        assert base.auroc.value == pytest.approx(roc_auc_score(truth, np.concatenate(doubts)))
        assert base.gains == {}
    last = report.rows[-1]
    assert (last.auroc.value, last.false_positive_rate.value) == (1.0, 0.0)
    for name, base in (("maximum", report.rows[3]), ("entropy", report.rows[4])):
        assert last.gains[name].value == pytest.approx(1.0 - base.auroc.value)
        assert last.savings[name].value == pytest.approx(base.false_positive_rate.value)
        assert last.gains[name].low >= 0
    assert 0.3 < report.rows[2].auroc.value < 0.7


def test_the_command_prints_a_table_and_json(
    toy_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "outside.csv"
    texts.write_text("text\nthe a very some\nof and with\nnear my your\n")
    command = ["evaluate", str(toy_checkpoint), "--out-of-scope", str(texts)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "300 texts in scope, 3 out of scope" in shown
    assert "label_distance" in shown
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["rows"]) == 9
    # Filler words alone speak for no label.
    assert max(row["auroc"]["value"] for row in found["rows"]) > 0.7


def test_a_text_that_cannot_be_used_is_named(toy_checkpoint: Path, tmp_path: Path) -> None:
    texts = tmp_path / "outside.jsonl"
    texts.write_text('{"text": "fine"}\n{"text": "\\u200b"}\n')
    with pytest.raises(DataError, match=r"outside\.jsonl, row 2"):
        evaluate_out_of_scope(toy_checkpoint, texts, "test", draws=10)
