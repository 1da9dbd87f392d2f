"""Experiment files that plan trainings of a second or so."""

from __future__ import annotations

import json
from pathlib import Path

from training.experiment.config import ExperimentConfig, load_experiment

METHODS = """
[methods]
ce = { set = ["objective.method=ce"] }
acl-embed = { set = ["objective.method=acl-embed"] }
"""


def write_task(path: Path, train: Path, backbone: Path) -> Path:
    """A task's training configuration, and the texts that it names beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / train.name).write_bytes(train.read_bytes())
    path.write_text(
        f"""
        [data]
        train = "{train.name}"
        validation = 0.2
        calibration = 0
        test = 0.3
        [model]
        backbone = {json.dumps(str(backbone))}
        max_length = 32
        [optimiser]
        backbone_learning_rate = 1e-3
        exit_learning_rate = 1e-3
        [run]
        epochs = 1
        batch_size = 16
        precision = "fp32"
        threads = 1
        """
    )
    return path


def write_experiment(
    folder: Path,
    train: Path,
    backbone: Path,
    *,
    head: str = 'baseline = "ce"\nseeds = [1, 2]',
    methods: str = METHODS,
    tasks: tuple[str, ...] = ("toy",),
) -> Path:
    """An experiment over tasks that are all alike."""
    lines = [head, "[tasks]"]
    for name in tasks:
        write_task(folder / "tasks" / f"{name}.toml", train, backbone)
        lines.append(f'{name} = {{ config = "tasks/{name}.toml" }}')
    path = folder / "experiment.toml"
    path.write_text("\n".join([*lines, methods]))
    return path


def make_experiment(
    folder: Path,
    train: Path,
    backbone: Path,
    *,
    head: str = 'baseline = "ce"\nseeds = [1, 2]',
    methods: str = METHODS,
    tasks: tuple[str, ...] = ("toy",),
) -> ExperimentConfig:
    """The experiment of `write_experiment`, read."""
    path = write_experiment(folder, train, backbone, head=head, methods=methods, tasks=tasks)
    return load_experiment(path)
