"""The quality that each method keeps as it runs fewer layers, leaving by entropy."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from training.experiment.cell import Cell
from training.report.curves import draw_curve, label_curves, mean_curve
from training.report.groups import panels_of, seeds_phrase
from training.report.numbers import Table
from training.report.style import drawing, headline, legend_below, method_styles, panels, readable


def quality_speed_table(cells: Sequence[Cell]) -> Table:
    """Mean and standard deviation over seeds of the score, at evenly spaced average layers."""
    rows = []
    for panel in panels_of(cells):
        for group in panel.one_a_method():
            curve = mean_curve([cell.quality_speed for cell in group.cells])
            for index, layers in enumerate(curve.layers):
                deviation = None if curve.deviation is None else float(curve.deviation[index])
                rows.append(
                    (
                        panel.task,
                        panel.metric,
                        group.method,
                        group.settings,
                        curve.seeds,
                        float(layers),
                        float(curve.mean[index]),
                        deviation,
                    )
                )
    columns = "task metric method settings seeds average_layers mean standard_deviation"
    return Table(tuple(columns.split()), tuple(rows))


@drawing
def quality_speed_figure(cells: Sequence[Cell]) -> Figure:
    """Left is fast, up is good: a curve above another keeps more quality at the same work."""
    found = panels_of(cells)
    shown = {panel: panel.one_a_method() for panel in found}
    everything = [group for groups in shown.values() for group in groups]
    styles = method_styles(group.method for group in everything)
    figure, axes = panels(len(found))
    for one, panel in zip(axes, found, strict=True):
        by_method = {group.method: group for group in shown[panel]}
        for place, (method, style) in enumerate(styles.items()):
            if method in by_method:
                curve = mean_curve([cell.quality_speed for cell in by_method[method].cells])
                draw_curve(one, curve, style, readable(method), place)
        label_curves(one, panel)
    headline(figure, f"Quality kept at fewer layers: {seeds_phrase(everything, 'bands')}")
    legend_below(figure, axes)
    return figure
