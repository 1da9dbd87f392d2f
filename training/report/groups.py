"""Sorts trainings: those that differ by seed alone together, and groups by the panel they share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.experiment.cell import Cell
from training.report.style import readable


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Trainings that differ by seed alone."""

    cells: tuple[Cell, ...]

    @property
    def method(self) -> str:
        return self.cells[0].method

    @property
    def objective(self) -> str:
        """The training method proper, where `method` is the name that an experiment gave it."""
        return str(self.cells[0].settings.get("objective.method", self.method))

    @property
    def exits(self) -> tuple[int, ...]:
        return self.cells[0].exits

    @property
    def settings(self) -> str:
        """The settings as one line of JSON."""
        return json.dumps(self.cells[0].settings, sort_keys=True, ensure_ascii=False)

    @property
    def scores(self) -> NDArray[np.float64]:
        """Score of every seed at every exit, [seeds, exits]."""
        return np.array([cell.score_by_exit for cell in self.cells], dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """Groups that can be drawn on the same axes: one task, one metric, one number of layers.

    A model with a single exit stands beside deeper ones with many, as what they replace.
    """

    task: str
    metric: str
    layers: int
    groups: tuple[Group, ...]

    @property
    def title(self) -> str:
        return f"{readable(self.task)} · {self.layers} layers"

    @property
    def exits(self) -> tuple[int, ...]:
        """Every layer at which a group has an exit."""
        return tuple(sorted({layer for group in self.groups for layer in group.exits}))

    def one_a_method(self) -> tuple[Group, ...]:
        """For each method the settings that most seeds ran, then of the highest mean score.

        With several settings of as many seeds that is a choice by the very scores that are shown.
        """
        best: dict[str, Group] = {}
        for group in self.groups:
            rank = (len(group.cells), float(group.scores.mean()))
            held = best.get(group.method)
            if held is None or rank > (len(held.cells), float(held.scores.mean())):
                best[group.method] = group
        return tuple(best.values())


def panels_of(cells: Sequence[Cell]) -> tuple[Panel, ...]:
    """Panels in order of appearance, each with its groups in order of appearance."""
    deepest: dict[tuple[str, str], int] = {}
    for cell in cells:
        where = (cell.task, cell.metric)
        deepest[where] = max(cell.layers, deepest.get(where, 0))
    found: dict[tuple[str, str, int], dict[str, list[Cell]]] = {}
    for cell in cells:
        alone = len(cell.exits) == 1
        layers = deepest[cell.task, cell.metric] if alone else cell.layers
        groups = found.setdefault((cell.task, cell.metric, layers), {})
        groups.setdefault(_but_the_seed(cell), []).append(cell)
    return tuple(
        Panel(task, metric, layers, tuple(Group(tuple(group)) for group in groups.values()))
        for (task, metric, layers), groups in found.items()
    )


def _but_the_seed(cell: Cell) -> str:
    """Equal for trainings that differ by seed alone."""
    run = {key: value for key, value in cell.configuration.get("run", {}).items() if key != "seed"}
    parts = [cell.method, cell.split, cell.exits, cell.settings, {**cell.configuration, "run": run}]
    return json.dumps(parts, sort_keys=True)


def spread(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Standard deviation over seeds (n - 1), [seeds, ...] -> [...]; None of a single seed."""
    return None if len(values) < 2 else values.std(axis=0, ddof=1)


def seeds_phrase(groups: Sequence[Group], spread_shown: str) -> str:
    """What a title says of seeds: "one seed", or "mean of 3 seeds, bars ± 1 st. dev.".

    spread_shown: what shows the spread, "bars" or "bands".
    """
    counts = sorted({len(group.cells) for group in groups})
    if counts == [1]:
        return "one seed"
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"mean of {seeds} seeds, {spread_shown} ± 1 st. dev."
