"""An experiment file (TOML): which tasks, methods and seeds, and the cells that they make."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from multi_exit.configuration import read_toml, validate
from training.config import TrainingConfig, load_config

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
Override = Annotated[str, Field(pattern=r"^[a-z_]+\.[a-z_0-9]+=.+$")]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskConfig(_Section):
    """[tasks.NAME]: a training configuration and what this experiment changes in it."""

    config: Path
    set: tuple[Override, ...] = ()


class MethodConfig(_Section):
    """[methods.NAME]: what makes the method. sweep: keys that take several values in turn."""

    set: tuple[Override, ...] = ()
    sweep: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    tasks: tuple[Name, ...] | None = Field(None, description="only these; all where absent")
    seeds: tuple[int, ...] | None = Field(None, description="other seeds than the experiment's")


class ExperimentConfig(_Section):
    """A whole experiment. Cells of the first seed come first, so that a part is of use early."""

    baseline: Name = Field(description="method that the others are compared with")
    seeds: tuple[int, ...] = Field((1, 2, 3, 4, 5), min_length=1)
    split: Literal["validation", "test"] = "test"
    keep_checkpoints: bool = False
    tasks: dict[Name, TaskConfig] = Field(min_length=1)
    methods: dict[Name, MethodConfig] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        if self.baseline not in self.methods:
            raise ValueError(f"baseline {self.baseline!r} is not among methods")
        for name, method in self.methods.items():
            unknown = set(method.tasks or ()) - self.tasks.keys()
            if unknown:
                raise ValueError(f"methods.{name}.tasks names {sorted(unknown)[0]!r}, not a task")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """One training to do. settings: what differs from the task's own configuration."""

    task: str
    method: str
    seed: int
    settings: dict[str, str]
    training: TrainingConfig


def load_experiment(path: Path) -> ExperimentConfig:
    """Reads an experiment file; relative paths start at its folder. Raises ConfigurationError."""
    content: dict[str, Any] = read_toml(path)
    for task in content.get("tasks", {}).values():
        if isinstance(task, dict) and isinstance(task.get("config"), str):
            task["config"] = path.parent / task["config"]
    return validate(ExperimentConfig, content, path)


def planned_cells(experiment: ExperimentConfig) -> Iterator[PlannedCell]:
    """Every cell, in the order in which they run: by seed, then task, then method.

    Raises ConfigurationError for a training configuration that is wrong, before anything runs
    if the iterator is exhausted first.
    """
    seeds = sorted(
        {*experiment.seeds, *(s for m in experiment.methods.values() for s in m.seeds or ())},
        key=lambda seed: experiment.seeds.index(seed) if seed in experiment.seeds else 10**9,
    )
    for seed in seeds:
        for (task_name, task), (name, method) in itertools.product(
            experiment.tasks.items(), experiment.methods.items()
        ):
            if method.tasks is not None and task_name not in method.tasks:
                continue
            if seed not in (method.seeds or experiment.seeds):
                continue
            for swept in _sweep(method):
                overrides = (*task.set, *method.set, *swept, f"run.seed={seed}")
                yield PlannedCell(
                    task=task_name,
                    method=name,
                    seed=seed,
                    settings=dict(text.split("=", 1) for text in (*method.set, *swept)),
                    training=load_config(task.config, overrides),
                )


def _sweep(method: MethodConfig) -> Iterator[tuple[str, ...]]:
    for values in itertools.product(*method.sweep.values()):
        yield tuple(f"{key}={value}" for key, value in zip(method.sweep, values, strict=True))
