"""Curves of score against average layers run: their mean over seeds, and how they are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from multi_exit.errors import DataError
from training.experiment.cell import Points
from training.report.groups import Panel, spread
from training.report.style import LineStyle, score_axis

_POINTS = 41


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """layers, mean, deviation: [points], layers ascending; deviation None of a single seed."""

    layers: NDArray[np.float64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64] | None
    seeds: int


def mean_curve(curves: Sequence[Points]) -> Curve:
    """Mean over seeds of (average layers run, score) curves, at evenly spaced average layers.

    Thresholds run other layers with every seed, so each curve is read between its points by a
    straight line, over the range of layers that all curves reach. Points of equal layers count by
    their mean. A line between two points is what mixing the two thresholds gives in accuracy.
    Raises DataError where the curves have no range in common.
    """
    sorted_curves = [_by_layers(points) for points in curves]
    first = max(float(layers[0]) for layers, _ in sorted_curves)
    last = min(float(layers[-1]) for layers, _ in sorted_curves)
    if first > last:
        raise DataError("the seeds' curves of score against layers have no range in common")
    at = np.linspace(first, last, _POINTS if last > first else 1)
    scores = np.array([np.interp(at, layers, values) for layers, values in sorted_curves])
    return Curve(at, scores.mean(axis=0), spread(scores), len(curves))


def _by_layers(points: Points) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    pairs = np.array(points, dtype=np.float64)
    layers, place = np.unique(pairs[:, 0], return_inverse=True)
    return layers, np.bincount(place, weights=pairs[:, 1]) / np.bincount(place)


def draw_curve(axes: Axes, curve: Curve, style: LineStyle, label: str, place: int) -> None:
    """A line with a band of one standard deviation; place: staggers the markers of many lines."""
    if curve.deviation is not None:
        low, high = curve.mean - curve.deviation, curve.mean + curve.deviation
        axes.fill_between(curve.layers, low, high, color=style.colour, alpha=0.13, linewidth=0)
    every = (place % 8, 8) if len(curve.layers) > 1 else 1
    axes.plot(curve.layers, curve.mean, label=label, markevery=every, **style.keywords())


def label_curves(axes: Axes, panel: Panel) -> None:
    """Title and axes of a panel of curves."""
    axes.set_title(panel.title)
    axes.set_xlabel("Layers run per text (mean)")
    score_axis(axes, panel.metric)
