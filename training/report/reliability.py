"""Whether an exit is right as often as it says: reliability diagrams and calibration error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from multi_exit.confidence import probabilities
from multi_exit.outcome import ExitOutputs
from training.report.numbers import Table
from training.report.style import (
    BLUE,
    GREY,
    MUTED,
    columns_of,
    drawing,
    headline,
    legend_below,
    panels,
)

BINS = 15


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """Texts of one exit in bins of the largest probability; empty bins hold NaN, count 0.

    counts, confidence, accuracy [bins]: texts, mean largest probability, share right.
    error: expected calibration error, sum over bins of counts / texts |accuracy - confidence|.
    """

    counts: NDArray[np.int64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    error: float


def reliability(
    confidence: NDArray[np.floating], right: NDArray[np.bool_], bins: int = BINS
) -> Reliability:
    """Reliability of answers: confidence [texts] in (0, 1], right [texts].

    Bins are (i / bins, (i + 1) / bins]. Source: Guo et al. 2017, "On Calibration of Modern Neural
    Networks". Raises ValueError for no texts or a confidence outside (0, 1].
    """
    if not len(confidence) or not ((confidence > 0) & (confidence <= 1)).all():
        raise ValueError("reliability needs confidences in (0, 1], of one text at least")
    place = np.digitize(confidence, np.arange(bins + 1) / bins, right=True) - 1
    counts = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(place, weights=confidence, minlength=bins) / counts
        accuracy = np.bincount(place, weights=right, minlength=bins) / counts
    gaps = np.where(counts > 0, np.abs(accuracy - mean), 0.0)
    return Reliability(counts, mean, accuracy, float((counts * gaps).sum() / counts.sum()))


def reliability_by_exit(
    outputs: ExitOutputs, labels: NDArray[np.integer]
) -> tuple[Reliability, ...]:
    """Reliability of every exit if all texts left there; labels [texts]."""
    right = outputs.labels == labels[:, None]
    return tuple(
        reliability(probabilities(outputs.logits[:, index]).max(axis=1), right[:, index])
        for index in range(outputs.logits.shape[1])
    )


def calibration_table(found: Sequence[Reliability], exits: Sequence[int]) -> Table:
    """Expected calibration error, accuracy and mean confidence of every exit."""
    rows = []
    for layer, one in zip(exits, found, strict=True):
        share = one.counts / one.counts.sum()
        accuracy = float(np.nansum(share * one.accuracy))
        confidence = float(np.nansum(share * one.confidence))
        rows.append((layer, one.error, accuracy, confidence))
    columns = ("exit_layer", "expected_calibration_error", "accuracy", "mean_confidence")
    return Table(columns, tuple(rows))


def reliability_table(found: Sequence[Reliability], exits: Sequence[int]) -> Table:
    """Every bin that holds texts, by exit."""
    rows = []
    for layer, one in zip(exits, found, strict=True):
        for index in np.flatnonzero(one.counts):
            low, high = index / len(one.counts), (index + 1) / len(one.counts)
            count, confidence = int(one.counts[index]), float(one.confidence[index])
            rows.append((layer, low, high, count, confidence, float(one.accuracy[index])))
    columns = ("exit_layer", "above", "up_to", "texts", "mean_confidence", "accuracy")
    return Table(columns, tuple(rows))


@drawing
def reliability_figure(found: Sequence[Reliability], exits: Sequence[int]) -> Figure:
    """A panel an exit: share right against confidence, over the share of texts in each bin.

    On the diagonal an exit is as often right as it says; below it says too much. The dots' area
    grows with the share of texts.
    """
    most = 4 if len(exits) > 6 else 3
    columns = columns_of(len(exits), most)
    figure, axes = panels(len(exits), width=2.7, columns=most)
    for axis, layer, one in zip(axes, exits, found, strict=True):
        _draw(axis, one)
        axis.set_title(f"Exit {layer}: ECE {one.error:.1%}")
    for index, axis in enumerate(axes):
        if index % columns == 0:
            axis.set_ylabel("Share of texts (%)")
        if index + columns >= len(axes):
            axis.set_xlabel("Largest probability (%)")
    errors = [one.error for one in found]
    least, most = exits[int(np.argmin(errors))], exits[int(np.argmax(errors))]
    extremes = f": smallest at exit {least}, largest at exit {most}" if least != most else ""
    headline(figure, f"Expected calibration error (ECE){extremes}")
    legend_below(figure, axes)
    return figure


def _draw(axes: Axes, one: Reliability) -> None:
    filled = one.counts > 0
    width = 100 / len(one.counts)
    shares = 100 * one.counts / one.counts.sum()
    axes.bar(
        np.arange(len(one.counts)) * width,
        shares,
        width * 0.92,
        align="edge",
        color=GREY,
        alpha=0.35,
        label="share of texts in the bin",
    )
    axes.plot([0, 100], [0, 100], color=MUTED, linestyle="--", linewidth=1, label="as it says")
    confidence, accuracy = 100 * one.confidence[filled], 100 * one.accuracy[filled]
    axes.plot(confidence, accuracy, color=BLUE, linewidth=0.8, alpha=0.6)
    # Noisy bins of few texts must not catch the eye.
    sizes = 6 + 0.9 * shares[filled]
    axes.scatter(
        confidence,
        accuracy,
        s=sizes,
        color=BLUE,
        zorder=3,
        clip_on=False,
        label="share right (large: many texts)",
    )
    axes.set_xlim(0, 101)
    axes.set_ylim(0, 103)
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.set_yticks([0, 25, 50, 75, 100])
