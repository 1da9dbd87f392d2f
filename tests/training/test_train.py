"""Training for real, on a tiny model: it learns, resumes bit for bit, and refuses what differs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.modules.module import register_module_forward_pre_hook

import training.train
from multi_exit.errors import ConfigurationError, DataError
from tests.conftest import MakeBackbone, toy_rows
from tests.training.models import small_config
from training.checkpoint import load_checkpoint
from training.config import TrainingConfig
from training.evaluate import evaluate_checkpoint
from training.model import MultiExitModel
from training.train import train


@pytest.fixture
def config(few_texts: Path, tiny_bert: Path) -> TrainingConfig:
    return small_config(few_texts, tiny_bert)


def _weights(checkpoint: Path) -> bytes:
    return (checkpoint / "model.safetensors").read_bytes()


def _train_interrupted(
    config: TrainingConfig, output: Path, *, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of a step: gradients are there, the optimiser has not moved."""
    real: Callable[[torch.nn.Module, float], float] = training.train.clip_gradients
    calls = 0

    def interrupted(model: torch.nn.Module, largest_norm: float) -> float:
        nonlocal calls
        calls += 1
        if calls > after:
            raise KeyboardInterrupt
        return real(model, largest_norm)

    with monkeypatch.context() as context:
        context.setattr(training.train, "clip_gradients", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(config, output)


def _history(checkpoint: Path, kind: str) -> list[dict[str, Any]]:
    lines = (checkpoint / "history.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["kind"] == kind]


def test_a_tiny_model_learns_and_every_exit_is_scored(toy_checkpoint: Path) -> None:
    report = evaluate_checkpoint(toy_checkpoint, "test")
    assert report.exits == (1, 2, 3)
    assert report.samples == 300
    assert min(report.scores_by_exit) > 0.8, "chance is a third"
    layers, scores = zip(*report.quality_speed, strict=True)
    assert layers[0] == 3.0, "threshold 0 is full depth"
    assert scores[0] == report.scores_by_exit[-1]
    assert list(layers) == sorted(layers, reverse=True), "a higher threshold leaves earlier"
    assert layers[-1] < 1.5


@pytest.mark.slow
def test_a_killed_process_leaves_a_run_that_goes_on(
    few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    config = small_config(few_texts, tiny_bert, run={"epochs": 40})
    straight = train(config, tmp_path / "straight")
    script = (
        "import sys; from pathlib import Path; from training.config import TrainingConfig;"
        "from training.train import train;"
        "train(TrainingConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]))"
    )
    output = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-c", script, config.model_dump_json(), str(output)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    states = output.with_name("killed.run")
    while process.poll() is None and not list(states.glob("state-*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not output.exists(), "killed too late for this test to mean anything"
    assert _weights(train(config, output).path) == _weights(straight.path)


def test_the_same_run_twice_gives_the_same_weights_and_another_seed_others(
    config: TrainingConfig, tmp_path: Path
) -> None:
    first, second = train(config, tmp_path / "a"), train(config, tmp_path / "b")
    assert _weights(first.path) == _weights(second.path)
    other = config.model_copy(update={"run": config.run.model_copy(update={"seed": 8})})
    assert _weights(train(other, tmp_path / "c").path) != _weights(first.path)


def test_the_best_epoch_by_the_mean_over_exits_is_kept(
    few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    config = small_config(few_texts, tiny_bert, run={"epochs": 6})
    report = train(config, tmp_path / "run")
    epochs = _history(report.path, "epoch")
    assert [line["epoch"] for line in epochs] == [1, 2, 3, 4, 5, 6]
    means = [sum(line["scores_by_exit"]) / 3 for line in epochs]
    best = max(range(6), key=lambda epoch: means[epoch])
    assert list(report.manifest.scores_by_exit) == epochs[best]["scores_by_exit"]
    again = evaluate_checkpoint(report.path, "validation")
    assert again.scores_by_exit == report.manifest.scores_by_exit


def test_a_run_stops_early_where_nothing_gets_better(
    few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    # Rates too small to change anything: the first epoch stays the best.
    config = small_config(
        few_texts,
        tiny_bert,
        run={"epochs": 9, "early_stopping_epochs": 2},
        optimiser={"backbone_learning_rate": 1e-12, "exit_learning_rate": 1e-12},
    )
    report = train(config, tmp_path / "run")
    assert report.manifest.epochs == 3


def test_without_validation_texts_the_last_epoch_is_kept(
    few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    config = small_config(few_texts, tiny_bert, data={"validation": 0.0})
    manifest = train(config, tmp_path / "run").manifest
    assert manifest.scores_by_exit == ()
    assert (manifest.epochs, manifest.steps) == (2, 18)


@pytest.mark.parametrize("method", ["ce", "ce+scl", "acl-embed", "acl-grad", "acl-cl"])
def test_every_method_trains(few_texts: Path, tiny_bert: Path, tmp_path: Path, method: str) -> None:
    config = small_config(few_texts, tiny_bert, objective={"method": method}, run={"epochs": 1})
    manifest = train(config, tmp_path / "run").manifest
    assert all(0.0 <= share <= 1.0 for share in manifest.contrastive_kept_by_exit)
    weights = load_file(tmp_path / "run" / "model.safetensors")
    assert all(bool(torch.isfinite(value).all()) for value in weights.values())


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains_and_resumes(
    few_texts: Path,
    tiny_bert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
) -> None:
    config = small_config(few_texts, tiny_bert, run={"precision": precision})
    straight = train(config, tmp_path / "straight")
    _train_interrupted(config, tmp_path / "stopped", after=5, monkeypatch=monkeypatch)
    assert _weights(train(config, tmp_path / "stopped").path) == _weights(straight.path)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_parameters_scope_trains(
    few_texts: Path, tiny_bert: Path, tmp_path: Path, precision: str
) -> None:
    # Nothing is above 180 degrees, so it must go the way of a run without a gate.
    runs = {"precision": precision, "epochs": 1}
    for gate in ("parameters", "none"):
        objective = {"gate": gate, "largest_angle": 180.0}
        train(small_config(few_texts, tiny_bert, objective=objective, run=runs), tmp_path / gate)
    found, expected = (
        load_file(tmp_path / gate / "model.safetensors") for gate in ("parameters", "none")
    )
    # Adam makes full steps of gradients that are all rounding, so single weights may differ.
    differences = torch.cat([(found[name] - expected[name]).flatten() for name in expected])
    assert differences.abs().mean() < 1e-4, "a step is 1e-3"


@pytest.mark.parametrize("family", ["roberta", "mpnet", "electra", "distilbert"])
def test_every_family_trains(
    make_backbone: MakeBackbone, few_texts: Path, tmp_path: Path, family: str
) -> None:
    config = small_config(
        few_texts, make_backbone(family), run={"epochs": 1}, model={"exits": [1, 3]}
    )
    report = train(config, tmp_path / "run")
    assert load_checkpoint(report.path).model.exits == (1, 3)


def test_repeated_layers_train_and_load(few_texts: Path, tiny_bert: Path, tmp_path: Path) -> None:
    config = small_config(
        few_texts, tiny_bert, model={"layers": 2, "repeat_layers": 2}, run={"epochs": 1}
    )
    report = train(config, tmp_path / "run")
    assert report.manifest.exits == (1, 2, 3, 4)
    assert len(load_checkpoint(report.path).model.backbone.layers) == 4


def test_measuring_angles_changes_no_weight(
    config: TrainingConfig, few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    measured = small_config(few_texts, tiny_bert, objective={"log_angles_every": 3})
    report = train(measured, tmp_path / "measured")
    assert _weights(report.path) == _weights(train(config, tmp_path / "plain").path)
    angles = _history(report.path, "angles")
    assert [line["step"] for line in angles] == [1, 4, 7, 10, 13]
    for line in angles:
        for scope in ("representation", "parameters"):
            degrees = line[scope]["contrastive_degrees"] + line[scope]["teacher_degrees"]
            assert len(degrees) == 5
            assert all(0.0 <= value <= 180.0 for value in degrees)
    assert report.manifest.scopes_agree is not None
    assert 0.0 <= report.manifest.scopes_agree <= 1.0


def test_texts_longer_than_the_backbone_are_refused_before_training(
    few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    config = small_config(few_texts, tiny_bert, model={"max_length": 65})
    with pytest.raises(ConfigurationError, match="max_length = 65, but the backbone has positions"):
        train(config, tmp_path / "run")


def test_a_text_that_cannot_be_encoded_is_named_by_row(tiny_bert: Path, tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    rows = [{"text": text, "label": label} for text, label in toy_rows(30, seed=1)]
    rows[11]["text"] = "\u200b\u0000"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = small_config(path, tiny_bert, data={"validation": 0.0, "calibration": 0.0})
    with pytest.raises(DataError, match=r"train\.jsonl, row 12: text is empty once normalised"):
        train(config, tmp_path / "run")
    rows[11]["text"] = "half a pair \ud83d"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=r"train\.jsonl, row 12: text holds a lone surrogate"):
        train(config, tmp_path / "other")


@pytest.mark.parametrize("validation", [0.2, 0.0])
@pytest.mark.parametrize("epochs", [1, 9])
def test_a_loss_that_is_not_a_number_stops_the_run(
    few_texts: Path, tiny_bert: Path, tmp_path: Path, epochs: int, validation: float
) -> None:
    config = small_config(
        few_texts,
        tiny_bert,
        optimiser={"exit_learning_rate": 1e30, "backbone_learning_rate": 1e30},
        data={"validation": validation},
        run={"epochs": epochs},
    )
    with pytest.raises(ConfigurationError, match="the loss is not a number"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_pairs_train(tiny_bert: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    rows = "".join(f"{text},more {text},{label}\n" for text, label in toy_rows(60, seed=4))
    path.write_text("text,other,label\n" + rows)
    config = small_config(path, tiny_bert, data={"text_pair_column": "other"}, run={"epochs": 1})
    assert train(config, tmp_path / "run").manifest.takes_pairs


def test_the_report_shows_scores_in_points(config: TrainingConfig, tmp_path: Path) -> None:
    report = train(config, tmp_path / "run")
    table = report.table()
    assert "validation accuracy" in table
    assert f"{100 * report.manifest.scores_by_exit[0]:.2f}" in table


def test_gradients_are_clipped_in_true_size_whatever_the_loss_scale(
    few_texts: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[[torch.nn.Module, float], float] = training.train.clip_gradients
    norms: dict[str, list[float]] = {"fp32": [], "fp16": []}
    for precision, found in norms.items():

        def recorded(
            model: torch.nn.Module, largest_norm: float, found: list[float] = found
        ) -> float:
            found.append(real(model, largest_norm))
            return found[-1]

        monkeypatch.setattr(training.train, "clip_gradients", recorded)
        train(
            small_config(few_texts, tiny_bert, run={"precision": precision, "epochs": 1}),
            tmp_path / precision,
        )
    # The same first batch and weights; a scale left in would be thousands of times off.
    assert norms["fp16"][0] == pytest.approx(norms["fp32"][0], rel=0.05)


@pytest.mark.parametrize(("largest_angle", "share"), [(180.0, 1.0), (0.0, 0.0)])
def test_the_manifest_tells_the_share_of_steps_that_kept_the_contrastive_term(
    few_texts: Path, tiny_bert: Path, tmp_path: Path, largest_angle: float, share: float
) -> None:
    objective = {"method": "acl-grad", "largest_angle": largest_angle}
    config = small_config(few_texts, tiny_bert, objective=objective)
    manifest = train(config, tmp_path / "run").manifest
    assert manifest.contrastive_kept_by_exit == (share, share, share)


def test_the_best_epoch_is_chosen_by_the_metric_asked_for(
    few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    config = small_config(few_texts, tiny_bert, data={"metric": "f1"}, run={"epochs": 1})
    report = train(config, tmp_path / "run")
    assert report.manifest.metric == "f1"
    found = evaluate_checkpoint(report.path, "validation")
    assert found.metric == "f1"
    assert found.scores["f1"] == report.manifest.scores_by_exit
    assert found.scores["f1"] != found.scores["accuracy"]


def test_steps_are_taken_with_dropout_and_judged_without(
    config: TrainingConfig, tmp_path: Path
) -> None:
    modes: set[tuple[bool, bool]] = set()

    def hook(module: torch.nn.Module, _: Any) -> None:
        if isinstance(module, MultiExitModel):
            training_now = {part.training for part in module.modules()}
            assert len(training_now) == 1, "some parts train and some do not"
            modes.add((torch.is_grad_enabled(), module.training))

    handle = register_module_forward_pre_hook(hook)
    try:
        train(config, tmp_path / "run")
    finally:
        handle.remove()
    assert modes == {(True, True), (False, False)}
