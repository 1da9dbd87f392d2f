"""The rules for where a text leaves, compared on the same trained models of one method."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from training.experiment.cell import Cell
from training.report.curves import Curve, draw_curve, label_curves, mean_curve
from training.report.groups import Group, panels_of, seeds_phrase
from training.report.numbers import Table
from training.report.style import drawing, headline, legend_below, panels, readable, rule_styles


def methods_with_rules(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Methods of which a training compared exit rules, in order of appearance."""
    return tuple(dict.fromkeys(cell.method for cell in cells if cell.exit_rules))


def exit_rules_table(cells: Sequence[Cell]) -> Table:
    """Mean and standard deviation over seeds of the score, by rule, at even average layers."""
    rows = []
    for panel in panels_of(cells):
        for group in panel.one_a_method():
            for rule, curve in _rules(group).items():
                for index, layers in enumerate(curve.layers):
                    deviation = None if curve.deviation is None else float(curve.deviation[index])
                    rows.append(
                        (
                            panel.task,
                            panel.metric,
                            group.method,
                            group.settings,
                            rule,
                            curve.seeds,
                            float(layers),
                            float(curve.mean[index]),
                            deviation,
                        )
                    )
    columns = "task metric method settings rule seeds average_layers mean standard_deviation"
    return Table(tuple(columns.split()), tuple(rows))


@drawing
def exit_rules_figure(cells: Sequence[Cell], method: str) -> Figure:
    """One panel a task, one line a rule, of the trainings of one method.

    Raises ValueError where no training of the method compared rules.
    """
    found = [
        (panel, group)
        for panel in panels_of([cell for cell in cells if cell.method == method])
        for group in panel.one_a_method()
        if _rules(group)
    ]
    if not found:
        raise ValueError(f"no training of {method} compared exit rules")
    styles = rule_styles(rule for _, group in found for rule in _rules(group))
    figure, axes = panels(len(found))
    for one, (panel, group) in zip(axes, found, strict=True):
        curves = _rules(group)
        for place, (rule, style) in enumerate(styles.items()):
            if rule in curves:
                draw_curve(one, curves[rule], style, readable(rule.replace("_", " ")), place)
        label_curves(one, panel)
    seeds = seeds_phrase([group for _, group in found], "bands")
    headline(figure, f"Exit rules compared on {readable(method)}: {seeds}")
    legend_below(figure, axes)
    return figure


def _rules(group: Group) -> dict[str, Curve]:
    """Mean curve of every rule that some seed compared."""
    names = dict.fromkeys(rule for cell in group.cells for rule in cell.exit_rules)
    return {
        rule: mean_curve([c.exit_rules[rule] for c in group.cells if rule in c.exit_rules])
        for rule in names
    }
