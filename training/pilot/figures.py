"""The pilot experiment's pictures: how angles are spread, and how they go over training."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from training.pilot.groups import TOTAL
from training.pilot.run import PilotAngles
from training.pilot.tables import PUBLISHED_RANGE
from training.report.angles import AngleSeries, moving_mean
from training.report.style import (
    BLUE,
    GREY,
    INK,
    VERMILION,
    drawing,
    headline,
    legend_below,
    panels,
)

_COLOURS = {"scl": VERMILION, "acl-embed": BLUE}
_NAMES = {"scl": "SCL", "acl-embed": "ACL-Embed"}
_BIN_DEGREES = 5


@drawing
def histogram_figure(angles: PilotAngles) -> Figure:
    """Angles at all parameters together, a panel a term; grey marks the published range."""
    figure, axes = panels(len(angles.terms), columns=2, width=3.9)
    edges = np.arange(0, 180 + _BIN_DEGREES, _BIN_DEGREES)
    for axis, term in zip(axes, angles.terms, strict=True):
        _, degrees = angles.of(term, TOTAL)
        counts, _ = np.histogram(degrees, bins=edges)
        shares = 100.0 * counts / max(1, counts.sum())
        axis.axvspan(*PUBLISHED_RANGE, color=GREY, alpha=0.15, linewidth=0)
        axis.bar(edges[:-1], shares, _BIN_DEGREES, align="edge", color=_COLOURS[term], alpha=0.8)
        axis.axvline(90, color=INK, linestyle="--", linewidth=1)
        above = float((degrees > 90.0).mean()) if len(degrees) else 0.0
        axis.set_title(f"{_NAMES[term]}: {above:.1%} above 90°")
        axis.set_xlim(0, 180)
        axis.set_xticks(range(0, 181, 30))
        axis.grid(visible=False, axis="x")
        axis.set_xlabel("Angle to the gradient of cross-entropy (degrees)")
        axis.set_ylabel("Share of mini-batches (%)")
    headline(figure, "Angles at all parameters; grey: 75° to 105°")
    return figure


@drawing
def curve_figure(angles: PilotAngles) -> Figure:
    """Moving mean over training: all parameters, and the band of embeddings, layers and exits."""
    figure, axes = panels(len(angles.terms), columns=2, width=4.4, height=3.0)
    for axis, term in zip(axes, angles.terms, strict=True):
        curves = {}
        for group in angles.groups:
            steps, degrees = angles.of(term, group)
            if len(steps):
                curves[group] = moving_mean(
                    AngleSeries("parameters", "contrastive", steps, degrees[:, None])
                )
        parts = [smooth for group, (_, smooth) in curves.items() if group != TOTAL]
        whole_steps, whole = curves[TOTAL]
        alike = [part[:, 0] for part in parts if len(part) == len(whole)]
        if alike:
            low, high = np.min(alike, axis=0), np.max(alike, axis=0)
            axis.fill_between(
                whole_steps, low, high, color=_COLOURS[term], alpha=0.18, lw=0, label="its groups"
            )
        axis.plot(whole_steps, whole[:, 0], color=_COLOURS[term], label="all parameters")
        axis.axhline(90, color=GREY, linestyle="--", linewidth=1, label="90°")
        axis.margins(x=0.02)
        axis.set_title(_NAMES[term])
        axis.set_xlabel("Training steps (mini-batches)")
        axis.set_ylabel("Angle to cross-entropy's (degrees)")
    headline(figure, "The angle over training: moving mean")
    legend_below(figure, axes)
    return figure
