"""Where texts leave, by their class and by their length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from multi_exit.outcome import ExitOutputs, PolicyOutcome, policy_outcome
from multi_exit.policy import Policy
from training.report.numbers import Table
from training.report.style import (
    MUTED,
    PAPER,
    drawing,
    exit_colours,
    headline,
    legend_below,
    readable,
)

# Of more classes only the earliest and the latest to leave are drawn, so many of each.
_CLASSES_AN_END = 10
_LENGTH_BUCKETS = 5
_THRESHOLDS = 200


@dataclass(frozen=True, slots=True, eq=False)
class Leaving:
    """One group of texts: its name, its size, and the share that leaves at each exit, [exits]."""

    name: str
    texts: int
    shares: NDArray[np.float64]

    def average_layers(self, exits: Sequence[int]) -> float:
        """Layers run, mean over the texts of the group."""
        return float(self.shares @ np.asarray(exits))


def threshold_at_layers(
    outputs: ExitOutputs, exits: tuple[int, ...], average_layers: float
) -> tuple[float, PolicyOutcome]:
    """The entropy threshold, one for all exits, that runs nearest to so many layers a text.

    Chosen on the texts it is shown on: to see who leaves early, not to serve by.
    """
    entropies = outputs.entropy[:, :-1]
    levels = np.linspace(0.0, 1.0, _THRESHOLDS)
    candidates = [0.0, *map(float, np.quantile(entropies, levels))] if entropies.size else [0.0]
    found = [
        (t, policy_outcome(outputs, Policy.constant(t, len(exits)), exits)) for t in candidates
    ]
    return min(found, key=lambda pair: abs(pair[1].average_layers - average_layers))


def leaving_by_class(
    taken: NDArray[np.integer], labels: NDArray[np.integer], names: Sequence[str], exits: int
) -> tuple[Leaving, ...]:
    """Share leaving at each exit by true class, classes without texts left out.

    taken, labels [texts]: index of the exit and of the label.
    """
    return tuple(
        _leaving(name, taken[labels == index], exits)
        for index, name in enumerate(names)
        if (labels == index).any()
    )


def leaving_by_length(
    taken: NDArray[np.integer], lengths: NDArray[np.integer], exits: int
) -> tuple[Leaving, ...]:
    """Share leaving at each exit by length in tokens, in up to five buckets of about equal size.

    taken, lengths [texts]; a length is never divided between buckets.
    """
    levels = np.arange(1, _LENGTH_BUCKETS) / _LENGTH_BUCKETS
    bounds = np.unique(np.quantile(lengths, levels, method="lower"))
    bucket = np.searchsorted(bounds, lengths, side="left")
    found = []
    for index in np.unique(bucket):
        inside = bucket == index
        low, high = int(lengths[inside].min()), int(lengths[inside].max())
        name = f"{low} tokens" if low == high else f"{low} to {high} tokens"
        found.append(_leaving(name, taken[inside], exits))
    return tuple(found)


def _leaving(name: str, taken: NDArray[np.integer], exits: int) -> Leaving:
    return Leaving(name, len(taken), np.bincount(taken, minlength=exits) / len(taken))


def leaving_table(groups: Sequence[Leaving], exits: Sequence[int]) -> Table:
    """A row a group: texts, average layers run, and the share that leaves at each exit."""
    columns = ("group", "texts", "average_layers", *(f"exit_{layer}" for layer in exits))
    rows = tuple(
        (group.name, group.texts, group.average_layers(exits), *group.shares.tolist())
        for group in groups
    )
    return Table(columns, rows)


@drawing
def leaving_figure(
    by_class: Sequence[Leaving],
    by_length: Sequence[Leaving],
    exits: Sequence[int],
    *,
    threshold: float,
    outcome: PolicyOutcome,
) -> Figure:
    """Stacked bars, a bar a group: dark leaves early, light runs deep. Classes early to late.

    threshold: of the entropy, the same at every exit. outcome: what it does on all these texts.
    """
    ordered = sorted(by_class, key=lambda group: group.average_layers(exits))
    left_out = max(0, len(ordered) - 2 * _CLASSES_AN_END)
    if left_out:
        ordered = ordered[:_CLASSES_AN_END] + ordered[-_CLASSES_AN_END:]
    bars = (len(ordered) + (1 if left_out else 0), len(by_length))
    figure = Figure(figsize=(7.6, 2.3 + 0.26 * sum(bars)), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[b + 0.9 for b in bars])
    _draw(upper, ordered, exits, gap_after=_CLASSES_AN_END if left_out else None)
    _draw(lower, by_length, exits)
    title = "By class, earliest to leave first"
    if left_out:
        title = (
            f"By class: the {_CLASSES_AN_END} earliest and the {_CLASSES_AN_END} latest to leave "
            f"of {len(by_class)}"
        )
    upper.set_title(title)
    lower.set_title("By length of the text")
    lower.set_xlabel("Share of the group's texts that leaves at each exit (%)")
    headline(
        figure,
        f"Where texts leave at entropy threshold {threshold:.3g}\n"
        f"({outcome.average_layers:.2f} of {exits[-1]} layers on average, "
        f"{outcome.agreement:.1%} of answers as at full depth)",
    )
    legend_below(figure, [upper])
    return figure


def _draw(
    axes: Axes, groups: Sequence[Leaving], exits: Sequence[int], gap_after: int | None = None
) -> None:
    rows = np.arange(len(groups), dtype=np.float64)
    if gap_after is not None:
        rows[gap_after:] += 1
        axes.text(50, gap_after, "…", ha="center", va="center", color=MUTED)
    start = np.zeros(len(groups))
    for index, (layer, colour) in enumerate(zip(exits, exit_colours(len(exits)), strict=True)):
        widths = np.array([100 * group.shares[index] for group in groups])
        axes.barh(
            rows,
            widths,
            0.8,
            left=start,
            color=colour,
            edgecolor=PAPER,
            linewidth=0.6,
            label=f"exit {layer}",
        )
        start += widths
    names = [f"{readable(group.name)} ({group.texts:,})" for group in groups]
    axes.set_yticks(rows, names)
    axes.set_ylim(rows[-1] + 0.6, -0.6)
    axes.set_xlim(0, 100)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    averages = axes.secondary_yaxis("right")
    averages.set_yticks(rows, [f"{group.average_layers(exits):.2f} layers" for group in groups])
    averages.tick_params(axis="y", length=0)
    averages.spines["right"].set_visible(False)
