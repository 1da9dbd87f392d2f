"""The report of many trainings: methods compared on every task."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from multi_exit.errors import DataError
from training.experiment.cell import Cell
from training.experiment.table import Interval, compare
from training.report.contrastive_weight import (
    contrastive_weight_figure,
    contrastive_weight_table,
    has_sweep,
)
from training.report.exit_rules import exit_rules_figure, exit_rules_table, methods_with_rules
from training.report.groups import panels_of
from training.report.layer_gains import gains_of, layer_gains_figure, layer_gains_table
from training.report.layer_scores import layer_scores_figure, layer_scores_table
from training.report.numbers import Table
from training.report.quality_speed import quality_speed_figure, quality_speed_table
from training.report.write import Picture, write_report


def report_cells(cells: Sequence[Cell], output: Path, *, baseline: str = "ce") -> Path:
    """Draws finished trainings into a folder; returns the HTML page.

    Pictures: score by exit layer, gain over the baseline, quality against layers run, score by
    lambda where it was varied, and exit rules for every method that compared them.
    Raises DataError where there are no trainings.
    """
    if not cells:
        raise DataError("no training is finished yet; there is nothing to draw")
    numbers = {
        "comparison": comparison_numbers(cells, baseline),
        "cost": cost_table(cells),
        "layer_scores": layer_scores_table(cells),
        "quality_speed": quality_speed_table(cells),
    }
    pictures = curve_pictures(cells)
    if gains_of(cells, baseline):
        numbers["layer_gains"] = layer_gains_table(cells, baseline)
        pictures.insert(1, _gains_picture(cells, baseline))
    if has_sweep(cells):
        numbers["contrastive_weight"] = contrastive_weight_table(cells)
        pictures.append(
            Picture(
                name="contrastive_weight",
                heading="Weight of the contrastive term",
                caption="Score, mean over all exits, by lambda. The dashed line is cross-entropy "
                "alone, which has no lambda.",
                figure=contrastive_weight_figure(cells),
                tables=("contrastive_weight",),
            )
        )
    rules = rule_pictures(cells)
    if rules:
        numbers["exit_rules"] = exit_rules_table(cells)
    return write_report(
        output,
        [*pictures, *rules],
        numbers,
        title="Multi-exit methods compared",
        introduction=_introduction(cells, baseline),
    )


def _introduction(cells: Sequence[Cell], baseline: str) -> str:
    methods, tasks = len({cell.method for cell in cells}), len({cell.task for cell in cells})
    splits = " and ".join(dict.fromkeys(cell.split for cell in cells))
    told = [
        f"{_counted(len(cells), 'training')} of {_counted(methods, 'method')} on "
        f"{_counted(tasks, 'task')}, scored on {splits} texts.",
        f"Gains are over {baseline} of the same task and seed, in points of 100, with 95 % "
        "intervals by Student's t over seeds: a difference whose interval holds 0 may be one of "
        "seeds, and of many intervals one in twenty misses. Area: mean score over budgets of "
        "layers from the first exit to the last. Layers saved: in per cent, at scores that both "
        "reach.",
    ]
    if any(len(panel.groups) > len(panel.one_a_method()) for panel in panels_of(cells)):
        told.append(
            "Where a method was trained with several settings, curves show those that most seeds "
            "ran, and among equals those of the highest mean score over exits: a choice by the "
            "very scores that are shown."
        )
    return " ".join(told)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _gains_picture(cells: Sequence[Cell], baseline: str) -> Picture:
    return Picture(
        name="layer_gains",
        heading=f"Gain over {baseline}",
        caption=f"The same scores less those of {baseline} with the same seed, so that above the "
        "dashed line is better. The bars are the spread of seeds, not an interval of the mean.",
        figure=layer_gains_figure(cells, baseline),
        tables=("layer_gains",),
    )


def comparison_numbers(cells: Sequence[Cell], baseline: str) -> Table:
    """The rows of `compare`: every method on every task, then on all together."""
    rows = [
        (
            row.task or "all",
            row.method,
            json.dumps(dict(row.settings), ensure_ascii=False),
            row.seeds,
            row.score,
            row.score_deviation,
            row.area,
            *_interval(row.gain),
            *_interval(row.saved),
        )
        for row in compare(cells, baseline)
    ]
    columns = (
        "task method settings seeds mean_over_exits standard_deviation area gain gain_low "
        "gain_high layers_saved saved_low saved_high"
    )
    return Table(tuple(columns.split()), tuple(rows))


def _interval(found: Interval | None) -> tuple[float | None, float | None, float | None]:
    if found is None:
        return None, None, None
    if found.pairs == 1:
        return found.mean, None, None
    return found.mean, found.low, found.high


def cost_table(cells: Sequence[Cell]) -> Table:
    """What a training of every task, method and settings took, mean over seeds."""
    rows = [
        (
            panel.task,
            panel.metric,
            group.method,
            group.settings,
            len(group.cells),
            float(np.mean([cell.steps for cell in group.cells])),
            float(np.mean([cell.training_seconds for cell in group.cells])),
        )
        for panel in panels_of(cells)
        for group in panel.groups
    ]
    columns = "task metric method settings seeds steps training_seconds"
    return Table(tuple(columns.split()), tuple(rows))


def curve_pictures(cells: Sequence[Cell]) -> list[Picture]:
    """Score by exit layer, and quality against layers run."""
    return [
        Picture(
            name="layer_scores",
            heading="Score by exit layer",
            caption="What each exit scores if all texts leave there.",
            figure=layer_scores_figure(cells),
            tables=("layer_scores",),
        ),
        Picture(
            name="quality_speed",
            heading="Quality and speed",
            caption="Texts leave at the first exit whose normalised entropy is below a threshold, "
            "the same at every exit; the threshold varies along the curve. Left is fast, up is "
            "good; the right end is full depth.",
            figure=quality_speed_figure(cells),
            tables=("quality_speed",),
        ),
    ]


def rule_pictures(cells: Sequence[Cell]) -> list[Picture]:
    """Exit rules compared, a picture a method; none where no training compared them."""
    return [
        Picture(
            name=f"exit_rules_{index}_{re.sub('[^a-z0-9]+', '-', method.lower()).strip('-')}",
            heading=f"Exit rules on {method}",
            caption="Other rules for where a text leaves, on the same models. Entropy, maximum and "
            "margin look at an exit's probabilities (between two labels they decide alike, so "
            "that their curves lie on each other), label distance at the nearest label "
            "embedding, patience at how many exits in a row agree.",
            figure=exit_rules_figure(cells, method),
            tables=("exit_rules",) if index == 1 else (),
        )
        for index, method in enumerate(methods_with_rules(cells), start=1)
    ]
