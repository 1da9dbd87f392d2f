"""Angles between the gradients of cross-entropy and of the contrastive terms during a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from multi_exit.errors import CheckpointError
from training.history import HISTORY_FILE, History
from training.report.numbers import Table
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

_SCOPES = {"representation": BLUE, "parameters": VERMILION}
_TERMS = {"contrastive": "contrastive term", "teacher": "teacher's term"}
_BIN_DEGREES = 5
# A line through every measurement is as ragged as mini-batches are.
_WINDOWS_A_RUN = 25


@dataclass(frozen=True, slots=True, eq=False)
class AngleSeries:
    """All measured angles of one term in one scope.

    steps [measurements]: mini-batches done. degrees [measurements, exits], in [0, 180]; a single
    column in the scope `parameters`, which has one angle for all exits.
    """

    scope: str
    term: str
    steps: NDArray[np.int64]
    degrees: NDArray[np.float64]

    @property
    def share_above_right_angle(self) -> float:
        """Share of angles above 90 degrees: the two gradients pull against each other."""
        return float((self.degrees > 90.0).mean())


def read_angles(checkpoint: Path) -> tuple[AngleSeries, ...]:
    """Angles in a checkpoint's history, by term and scope; none where none were measured.

    A measurement with an angle that is no number (gradients overflowed) is left out.
    Raises CheckpointError for a history that is damaged.
    """
    found: dict[tuple[str, str], list[tuple[int, list[float]]]] = {}
    try:
        for line in History(checkpoint / HISTORY_FILE).lines():
            if line["kind"] != "angles":
                continue
            for term in _TERMS:
                for scope in _SCOPES:
                    degrees = line[scope][f"{term}_degrees"]
                    if degrees and np.isfinite(degrees).all():
                        kept = degrees if scope == "representation" else degrees[:1]
                        found.setdefault((term, scope), []).append((line["step"], kept))
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{checkpoint / HISTORY_FILE} is damaged: {error!r}") from error
    return tuple(
        AngleSeries(
            scope,
            term,
            np.array([step for step, _ in lines], dtype=np.int64),
            np.array([degrees for _, degrees in lines], dtype=np.float64),
        )
        for term in _TERMS
        for scope in _SCOPES
        if (lines := found.get((term, scope)))
    )


def angles_table(series: Sequence[AngleSeries]) -> Table:
    """Measurements, mean angle and share above 90 degrees, by term, scope and exit (from 1)."""
    rows = []
    for one in series:
        for index in range(one.degrees.shape[1]):
            degrees = one.degrees[:, index]
            exit_number = index + 1 if one.scope == "representation" else None
            rows.append(
                (
                    one.term,
                    one.scope,
                    exit_number,
                    len(degrees),
                    float(degrees.mean()),
                    float((degrees > 90.0).mean()),
                )
            )
    columns = "term scope exit_number measurements mean_degrees share_above_90"
    return Table(tuple(columns.split()), tuple(rows))


@drawing
def angle_histogram_figure(series: Sequence[AngleSeries]) -> Figure:
    """How often each angle was measured, a panel a term and scope, with the line at 90 degrees."""
    figure, axes = panels(len(series), columns=2, width=3.9)
    edges = np.arange(0, 180 + _BIN_DEGREES, _BIN_DEGREES)
    for axis, one in zip(axes, series, strict=True):
        counts, _ = np.histogram(one.degrees, bins=edges)
        shares = 100.0 * counts / counts.sum()
        against = edges[:-1] >= 90
        colour = _SCOPES[one.scope]
        axis.bar(edges[:-1], shares, _BIN_DEGREES, align="edge", color=colour, alpha=0.45)
        axis.bar(edges[:-1][against], shares[against], _BIN_DEGREES, align="edge", color=colour)
        axis.axvline(90, color=INK, linestyle="--", linewidth=1)
        above = f"{one.share_above_right_angle:.1%} above 90°"
        axis.set_title(f"{_TERMS[one.term].capitalize()}, scope {one.scope}:\n{above}")
        axis.set_xlim(0, 180)
        axis.set_xticks(range(0, 181, 30))
        axis.grid(visible=False, axis="x")
        axis.set_xlabel("Angle to the gradient of cross-entropy (degrees)")
        axis.set_ylabel("Share of angles (%)")
    headline(figure, "Above 90° a term's gradient pulls against cross-entropy")
    return figure


@drawing
def angle_curve_figure(series: Sequence[AngleSeries]) -> Figure:
    """Moving mean of the angle over training steps, by scope, a panel a term.

    The band reaches from the exit of the smallest to that of the largest moving mean.
    """
    terms = [term for term in _TERMS if any(one.term == term for one in series)]
    figure, axes = panels(len(terms), columns=2, width=4.4, height=3.0)
    for axis, term in zip(axes, terms, strict=True):
        for one in (one for one in series if one.term == term):
            steps, smooth = moving_mean(one)
            colour = _SCOPES[one.scope]
            wide = smooth.shape[1] > 1
            if wide:
                low, high = smooth.min(axis=1), smooth.max(axis=1)
                label = "its smallest to largest exit"
                axis.fill_between(steps, low, high, color=colour, alpha=0.18, lw=0, label=label)
            dashes = "-" if one.scope == "representation" else (0, (5, 1.5))
            label = f"scope {one.scope}" + (" (mean)" if wide else "")
            axis.plot(steps, smooth.mean(axis=1), color=colour, linestyle=dashes, label=label)
        axis.axhline(90, color=GREY, linestyle="--", linewidth=1, label="90°")
        axis.margins(x=0.02)
        low, high = axis.get_ylim()
        axis.set_ylim(min(low, 80), max(high, 100))
        axis.set_title(_TERMS[term].capitalize())
        axis.set_xlabel("Training steps (mini-batches)")
        axis.set_ylabel("Angle to cross-entropy's (degrees)")
    headline(figure, "The gradients' angle over training: moving mean")
    legend_below(figure, axes)
    return figure


def moving_mean(series: AngleSeries) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean of steps and of degrees over windows of a 25th of the measurements.

    Returns steps [windows] and degrees [windows, exits]; windows overlap and slide by one.
    """
    window = max(1, round(len(series.steps) / _WINDOWS_A_RUN))
    pieces = np.lib.stride_tricks.sliding_window_view(series.degrees, window, axis=0)
    steps = np.lib.stride_tricks.sliding_window_view(series.steps, window)
    return steps.mean(axis=-1), pieces.mean(axis=-1)
