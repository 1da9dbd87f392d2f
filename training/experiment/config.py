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
from training.experiment.cell import Key, configuration_digest

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
Override = Annotated[str, Field(pattern=r"^[a-z_]+\.[a-z_0-9]+=.+$")]
SweptKey = Annotated[str, Field(pattern=r"^[a-z_]+\.[a-z_0-9]+$")]
SweptValues = Annotated[tuple[bool | int | float | str, ...], Field(min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskConfig(_Section):
    """[tasks.NAME]: a training configuration and what this experiment changes in it."""

    config: Path
    set: tuple[Override, ...] = ()


class MethodConfig(_Section):
    """[methods.NAME]: what makes the method. sweep: keys that take several values in turn."""

    set: tuple[Override, ...] = ()
    sweep: dict[SweptKey, SweptValues] = Field(default_factory=dict)
    tasks: tuple[Name, ...] | None = Field(
        None, min_length=1, description="only these; all where absent"
    )
    seeds: tuple[int, ...] | None = Field(
        None, min_length=1, description="other seeds than the experiment's"
    )


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
        if self.methods[self.baseline].sweep:
            raise ValueError(f"baseline {self.baseline!r} has a sweep; which one is compared with?")
        for name, method in self.methods.items():
            unknown = set(method.tasks or ()) - self.tasks.keys()
            if unknown:
                raise ValueError(f"methods.{name}.tasks names {sorted(unknown)[0]!r}, not a task")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """One training to do, and the split to score it on.

    settings: what differs from the task's own configuration.
    """

    task: str
    method: str
    seed: int
    settings: dict[str, str]
    split: str
    training: TrainingConfig

    @property
    def key(self) -> Key:
        """That of the cell which this becomes."""
        digest = configuration_digest(self.training)
        return (self.task, self.method, self.seed, self.split, digest)

    @property
    def folder(self) -> str:
        """Name of its checkpoint's folder."""
        digest = configuration_digest(self.training)
        return f"{self.task}-{self.method}-{self.seed}-{digest[:8]}"


def load_experiment(path: Path) -> ExperimentConfig:
    """Reads an experiment file; relative paths start at its folder. Raises ConfigurationError."""
    content: dict[str, Any] = read_toml(path)
    tasks = content.get("tasks")
    for task in tasks.values() if isinstance(tasks, dict) else ():
        if isinstance(task, dict) and isinstance(task.get("config"), str):
            task["config"] = path.parent / task["config"]
    return validate(ExperimentConfig, content, path)


def planned_cells(experiment: ExperimentConfig) -> Iterator[PlannedCell]:
    """Every cell, in the order in which they run: by seed, then task, then method.

    Raises ConfigurationError for a training configuration that is wrong, before anything runs
    if the iterator is exhausted first.
    """
    others = itertools.chain.from_iterable(m.seeds or () for m in experiment.methods.values())
    for seed in dict.fromkeys((*experiment.seeds, *others)):
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
                    split=experiment.split,
                    training=load_config(task.config, overrides),
                )


def _sweep(method: MethodConfig) -> Iterator[tuple[str, ...]]:
    for values in itertools.product(*method.sweep.values()):
        yield tuple(
            f"{key}={_toml(value)}" for key, value in zip(method.sweep, values, strict=True)
        )


def _toml(value: bool | int | float | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
