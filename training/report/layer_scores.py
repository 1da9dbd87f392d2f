"""The score at every exit layer: a line a method, a panel a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from training.experiment.cell import Cell
from training.report.groups import Group, panels_of, seeds_phrase, spread
from training.report.numbers import Table
from training.report.style import (
    drawing,
    headline,
    layer_axis,
    legend_below,
    method_styles,
    panels,
    readable,
    score_axis,
)


def layer_scores_table(cells: Sequence[Cell]) -> Table:
    """Mean and standard deviation over seeds at every exit, for every method and settings."""
    rows = []
    for panel in panels_of(cells):
        drawn = panel.one_a_method()
        for group in panel.groups:
            means, deviations = group.scores.mean(axis=0), spread(group.scores)
            for index, layer in enumerate(group.exits):
                deviation = None if deviations is None else float(deviations[index])
                rows.append(
                    (
                        panel.task,
                        panel.metric,
                        panel.layers,
                        group.method,
                        group.settings,
                        "yes" if group in drawn else "no",
                        layer,
                        len(group.cells),
                        float(means[index]),
                        deviation,
                    )
                )
    columns = "task metric layers method settings drawn exit_layer seeds mean standard_deviation"
    return Table(tuple(columns.split()), tuple(rows))


@drawing
def layer_scores_figure(cells: Sequence[Cell]) -> Figure:
    """Lines are means over seeds, bands one standard deviation to either side.

    Of several settings of a method only one is drawn (`Panel.one_a_method`).
    """
    found = panels_of(cells)
    shown = {panel: panel.one_a_method() for panel in found}
    everything = [group for groups in shown.values() for group in groups]
    styles = method_styles(group.method for group in everything)
    figure, axes = panels(len(found))
    for one, panel in zip(axes, found, strict=True):
        by_method = {group.method: group for group in shown[panel]}
        for method, style in styles.items():
            if method in by_method:
                _draw_scores(one, by_method[method], style.colour, style.keywords())
        one.set_title(panel.title)
        layer_axis(one, panel.exits)
        score_axis(one, panel.metric)
    headline(figure, f"Score at every exit layer: {seeds_phrase(everything, 'bands')}")
    legend_below(figure, axes)
    return figure


def _draw_scores(axes: Axes, group: Group, colour: str, keywords: dict[str, Any]) -> None:
    means, deviations = group.scores.mean(axis=0), spread(group.scores)
    if deviations is not None:
        low, high = means - deviations, means + deviations
        axes.fill_between(group.exits, low, high, color=colour, alpha=0.13, linewidth=0)
    axes.plot(group.exits, means, label=readable(group.method), **keywords)
