"""What each method gains over the baseline at every exit, paired by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from training.experiment.cell import Cell
from training.report.groups import Group, Panel, panels_of, spread
from training.report.numbers import Table
from training.report.style import (
    drawing,
    gain_axis,
    headline,
    layer_axis,
    legend_below,
    method_styles,
    panels,
    readable,
)

_ASIDE = 0.09


@dataclass(frozen=True, slots=True, eq=False)
class PanelGains:
    """Gains of one panel: by method the score minus the baseline's, [shared seeds, exits]."""

    panel: Panel
    exits: tuple[int, ...]
    by_method: dict[str, NDArray[np.float64]]


def gains(group: Group, baseline: Group) -> NDArray[np.float64]:
    """Score minus the baseline's of the same seed, [seeds that both have, exits].

    Both must have the same exits. No rows where they share no seed.
    """
    by_seed = {cell.seed: np.array(cell.score_by_exit) for cell in baseline.cells}
    rows = [
        np.array(cell.score_by_exit) - by_seed[cell.seed]
        for cell in group.cells
        if cell.seed in by_seed
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, len(group.exits))


def gains_of(cells: Sequence[Cell], baseline: str) -> tuple[PanelGains, ...]:
    """Gains in every panel with the baseline and another method of the same exits and seeds."""
    found = []
    for panel in panels_of(cells):
        by_method = {group.method: group for group in panel.one_a_method()}
        reference = by_method.pop(baseline, None)
        if reference is None:
            continue
        gained = {
            method: gains(group, reference)
            for method, group in by_method.items()
            if group.exits == reference.exits
        }
        gained = {method: values for method, values in gained.items() if len(values)}
        if gained:
            found.append(PanelGains(panel, reference.exits, gained))
    return tuple(found)


def layer_gains_table(cells: Sequence[Cell], baseline: str) -> Table:
    """Mean and standard deviation over shared seeds of the gain at every exit."""
    rows = []
    for found in gains_of(cells, baseline):
        task, metric = found.panel.task, found.panel.metric
        for method, gained in found.by_method.items():
            means, deviations = gained.mean(axis=0), spread(gained)
            for index, layer in enumerate(found.exits):
                deviation = None if deviations is None else float(deviations[index])
                mean = float(means[index])
                rows.append((task, metric, method, layer, len(gained), mean, deviation))
    columns = "task metric method exit_layer seeds mean_gain standard_deviation"
    return Table(tuple(columns.split()), tuple(rows))


@drawing
def layer_gains_figure(cells: Sequence[Cell], baseline: str) -> Figure:
    """Scores as differences from the baseline's of the same seed: above 0 is better.

    Methods stand a little beside each other, so that bars do not cover bars.
    Raises ValueError where no panel has the baseline and another method.
    """
    everything = gains_of(cells, baseline)
    if not everything:
        raise ValueError(f"no task has trainings of {baseline} and of another method")
    styles = method_styles([baseline, *(m for found in everything for m in found.by_method)])
    figure, axes = panels(len(everything))
    for one, found in zip(axes, everything, strict=True):
        one.axhline(
            0, color=styles[baseline].colour, linestyle="--", lw=1, label=readable(baseline)
        )
        methods = [method for method in styles if method in found.by_method]
        for place, method in enumerate(methods):
            points = 100 * found.by_method[method]
            aside = (place - (len(methods) - 1) / 2) * _ASIDE
            one.errorbar(
                [layer + aside for layer in found.exits],
                points.mean(axis=0),
                yerr=spread(points),
                label=readable(method),
                elinewidth=0.9,
                capsize=1.5,
                **styles[method].keywords(),
            )
        one.set_title(found.panel.title)
        layer_axis(one, found.exits)
        gain_axis(one, found.panel.metric)
    several = any(len(gained) > 1 for found in everything for gained in found.by_method.values())
    spread_phrase = "paired by seed, bars ± 1 st. dev." if several else "one seed"
    headline(figure, f"Gain over {readable(baseline)} at every exit: {spread_phrase}")
    legend_below(figure, axes)
    return figure
