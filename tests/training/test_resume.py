"""A run that is killed, anywhere and however often, ends with the weights of one that was not."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

import training.resume
from multi_exit.errors import ConfigurationError
from tests.conftest import toy_rows, write_csv
from tests.training.models import small_config
from training.checkpoint import load_checkpoint
from training.config import TrainingConfig
from training.model import MultiExitModel
from training.resume import RunFolder, RunState, restore_scaler, scaler_state
from training.train import train

# 80 texts, of which 56 train in batches of 8, two epochs.
STEPS_AN_EPOCH, STEPS = 7, 14


@pytest.fixture(scope="module")
def config(few_texts: Path, tiny_bert: Path) -> TrainingConfig:
    return small_config(few_texts, tiny_bert, objective={"log_angles_every": 3})


@pytest.fixture(scope="module")
def uninterrupted(config: TrainingConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a run that nothing disturbed."""
    output = tmp_path_factory.mktemp("uninterrupted") / "checkpoint"
    assert train(config, output).manifest.steps == STEPS
    return output


@contextmanager
def _interrupted_step(step: int, *, before: bool) -> Iterator[None]:
    """Ctrl-C at a step of the optimiser, counted from 0, just before or after it moves weights."""
    done = 0

    def hook(optimiser: Optimizer, *_: Any) -> None:
        nonlocal done
        done += 1
        if done == step + 1:
            raise KeyboardInterrupt

    register = register_optimizer_step_pre_hook if before else register_optimizer_step_post_hook
    handle = register(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _interrupted_evaluation(number: int) -> Iterator[None]:
    """Ctrl-C while validation texts are scored: between an epoch's last step and its state."""
    done = 0

    def hook(module: nn.Module, _: Any) -> None:
        nonlocal done
        if isinstance(module, MultiExitModel) and not module.training:
            done += 1
            if done == number + 1:
                raise KeyboardInterrupt

    handle = register_module_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _assert_equal_runs(found: Path, expected: Path) -> None:
    names = sorted(path.name for path in expected.iterdir())
    assert sorted(path.name for path in found.iterdir()) == names
    for name in names:
        if name != "checkpoint.json":
            assert (found / name).read_bytes() == (expected / name).read_bytes(), name
    manifests = [
        load_checkpoint(path).manifest.model_copy(update={"training_seconds": 0.0})
        for path in (found, expected)
    ]
    assert manifests[0] == manifests[1]


def _entries(output: Path) -> list[str]:
    return sorted(path.name for path in output.parent.iterdir())


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("step", [0, 2, 3, 5, STEPS_AN_EPOCH - 1, STEPS_AN_EPOCH, STEPS - 1])
def test_a_run_killed_at_any_step_ends_with_the_same_weights(
    config: TrainingConfig, uninterrupted: Path, tmp_path: Path, step: int, before: bool
) -> None:
    output = tmp_path / "checkpoint"
    with _interrupted_step(step, before=before), pytest.raises(KeyboardInterrupt):
        train(config, output)
    assert not output.exists()
    torch.manual_seed(999)
    train(config, output)
    _assert_equal_runs(output, uninterrupted)
    assert _entries(output) == ["checkpoint"]


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_run_killed_while_it_judges_an_epoch_ends_with_the_same_weights(
    config: TrainingConfig, uninterrupted: Path, tmp_path: Path, epoch: int
) -> None:
    output = tmp_path / "checkpoint"
    with _interrupted_evaluation(epoch), pytest.raises(KeyboardInterrupt):
        train(config, output)
    train(config, output)
    _assert_equal_runs(output, uninterrupted)


def test_a_run_killed_again_and_again_ends_with_the_same_weights(
    config: TrainingConfig, uninterrupted: Path, tmp_path: Path
) -> None:
    output = tmp_path / "checkpoint"
    interruptions = 0
    while not output.exists():
        try:
            # Four steps at a time: each try gets past one state.
            with _interrupted_step(4, before=False):
                train(config, output)
        except KeyboardInterrupt:
            interruptions += 1
    assert interruptions >= 3
    _assert_equal_runs(output, uninterrupted)


@contextmanager
def _watched(report: Callable[[], None]) -> Iterator[None]:
    """Calls `report` before and after every call that the files that write to disk make."""
    writers = {
        str(Path(training.resume.__file__).with_name(f"{name}.py"))
        for name in ("resume", "checkpoint", "history")
    } | {shutil.__file__}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if frame.f_code.co_filename in writers:
            report()

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_ctrl_c_at_any_moment_of_writing_loses_nothing(
    config: TrainingConfig, uninterrupted: Path, tmp_path: Path
) -> None:
    count = 0

    def counts() -> None:
        nonlocal count
        count += 1

    with _watched(counts):
        train(config, tmp_path / "counted")
    moments = count
    assert moments > 1000
    generator = random.Random(0)
    # The last moments are those of the checkpoint itself and of tidying up behind it.
    chosen = [generator.randrange(moments) for _ in range(5)]
    chosen += [moments - generator.randrange(1, 200) for _ in range(5)]
    for moment in chosen:
        left = moment

        def interrupts() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

        output = tmp_path / f"run-{moment}" / "checkpoint"
        try:
            with _watched(interrupts):
                train(config, output)
        except KeyboardInterrupt:
            pass
        if output.exists():
            _assert_equal_runs(output, uninterrupted)
        train(config, output)
        _assert_equal_runs(output, uninterrupted)


def test_a_checkpoint_is_whole_from_its_first_moment(
    config: TrainingConfig, uninterrupted: Path, tmp_path: Path
) -> None:
    output = tmp_path / "checkpoint"
    names = sorted(path.name for path in uninterrupted.iterdir())
    looked = 0

    def looks() -> None:
        nonlocal looked
        if output.exists():
            looked += 1
            assert sorted(path.name for path in output.iterdir()) == names

    with _watched(looks):
        train(config, output)
    assert looked > 10


def test_what_is_left_of_a_removed_run_is_not_taken_for_a_run(
    config: TrainingConfig, uninterrupted: Path, tmp_path: Path
) -> None:
    output = tmp_path / "checkpoint"
    with _interrupted_step(5, before=False), pytest.raises(KeyboardInterrupt):
        train(config, output)
    # As if Ctrl-C came while the folder was removed: states of nobody knows which configuration.
    (tmp_path / "checkpoint.run" / "configuration.json").unlink()
    for file in (tmp_path / "checkpoint.run").glob("state-*/tensors"):
        file.write_bytes(b"")
    train(config, output)
    _assert_equal_runs(output, uninterrupted)


def test_an_unfinished_run_of_another_configuration_is_refused(
    config: TrainingConfig, few_texts: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    output = tmp_path / "checkpoint"
    with _interrupted_step(4, before=False), pytest.raises(KeyboardInterrupt):
        train(config, output)
    other = small_config(few_texts, tiny_bert, run={"seed": 8})
    with pytest.raises(ConfigurationError, match="unfinished run of another configuration"):
        train(other, output)


def test_a_finished_checkpoint_of_another_configuration_is_refused(
    few_texts: Path, tiny_bert: Path, uninterrupted: Path
) -> None:
    other = small_config(few_texts, tiny_bert, run={"seed": 8})
    before = {path.name: path.read_bytes() for path in uninterrupted.iterdir()}
    with pytest.raises(ConfigurationError, match="checkpoint of another configuration"):
        train(other, uninterrupted)
    assert {path.name: path.read_bytes() for path in uninterrupted.iterdir()} == before


def test_a_finished_run_is_returned_without_training(
    config: TrainingConfig, uninterrupted: Path
) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in uninterrupted.iterdir()}
    with _interrupted_step(0, before=True):
        report = train(config, uninterrupted)
    assert report.manifest == load_checkpoint(uninterrupted).manifest
    assert {path.name: path.stat().st_mtime_ns for path in uninterrupted.iterdir()} == before


def test_a_folder_of_something_else_is_refused_and_left_alone(
    config: TrainingConfig, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="something else than a checkpoint"):
        train(config, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_in_the_place_of_the_output_is_refused(
    config: TrainingConfig, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint").write_text("mine")
    with pytest.raises(ConfigurationError, match="something else than a checkpoint"):
        train(config, tmp_path / "checkpoint")


def test_data_that_changed_under_an_unfinished_run_are_refused(
    tiny_bert: Path, tmp_path: Path
) -> None:
    rows = toy_rows(80, seed=5)
    config = small_config(write_csv(tmp_path / "train.csv", rows), tiny_bert)
    with _interrupted_step(4, before=False), pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "checkpoint")
    write_csv(tmp_path / "train.csv", [*rows[:-1], ("rain and rain", "weather")])
    with pytest.raises(ConfigurationError, match="the data changed"):
        train(config, tmp_path / "checkpoint")


def test_only_the_newest_state_is_kept(config: TrainingConfig, tmp_path: Path) -> None:
    with _interrupted_step(STEPS - 1, before=True), pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "checkpoint")
    names = sorted(path.name for path in (tmp_path / "checkpoint.run").iterdir())
    assert names == [
        "best-0000.safetensors",
        "configuration.json",
        "data.json",
        "history.jsonl",
        "state-000000012",
    ]


def test_a_loss_scaler_goes_on_where_it_stopped() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.load_state_dict({**scaler.state_dict(), "scale": 8.0, "_growth_tracker": 5})
    state = RunState.model_validate(scaler_state(scaler))
    fresh = torch.amp.GradScaler("cpu", init_scale=1024.0)
    restore_scaler(fresh, state)
    assert fresh.state_dict() == scaler.state_dict()


def test_a_scaler_that_is_not_in_use_has_no_state() -> None:
    assert scaler_state(torch.amp.GradScaler("cpu", enabled=False)) == {}


def test_a_run_that_stopped_early_and_was_killed_stays_stopped(
    few_texts: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rates too small to change anything: the first epoch stays the best.
    config = small_config(
        few_texts,
        tiny_bert,
        run={"epochs": 6, "early_stopping_epochs": 1},
        optimiser={"backbone_learning_rate": 1e-12, "exit_learning_rate": 1e-12},
    )

    def interrupted(self: RunFolder, epoch: int) -> dict[str, torch.Tensor]:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(RunFolder, "load_best", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "checkpoint")
    report = train(config, tmp_path / "checkpoint")
    assert report.manifest.epochs == 2


def test_only_the_best_epoch_is_kept(
    few_texts: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: RunFolder, epoch: int) -> dict[str, torch.Tensor]:
        found = sorted(path.name for path in self.path.glob("best-*"))
        assert found == [f"best-{epoch:04d}.safetensors"]
        raise KeyboardInterrupt

    # Without validation texts, every epoch is the best so far.
    config = small_config(few_texts, tiny_bert, data={"validation": 0.0}, run={"epochs": 3})
    monkeypatch.setattr(RunFolder, "load_best", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "checkpoint")


def test_a_removal_that_is_interrupted_leaves_nothing_to_go_on_from(
    config: TrainingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    folder = RunFolder.open(tmp_path / "checkpoint", config)
    with monkeypatch.context() as context:
        context.setattr(training.resume.shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            folder.remove()
    assert not (folder.path / "configuration.json").exists()
