"""The pilot experiment's numbers: every angle, and what they come to by group."""

from __future__ import annotations

import numpy as np

from training.pilot.run import PilotAngles
from training.report.numbers import Table, Value

# Angles between CE and SCL on RTE that the literature shows, in degrees; the one figure there is.
PUBLISHED_RANGE = (75.0, 105.0)
_COLUMNS = (
    "term group measurements mean_degrees smallest percentile_5 median percentile_95 largest"
    " share_above_90 share_in_published_range"
)


def angles_table(angles: PilotAngles) -> Table:
    """Every measured angle: step, term, group, degrees."""
    rows: list[tuple[Value, ...]] = []
    for term in angles.terms:
        for group in angles.groups:
            steps, degrees = angles.of(term, group)
            rows += [
                (step, term, group, round(value, 3))
                for step, value in zip(steps.tolist(), degrees.tolist(), strict=True)
            ]
    return Table(("step", "term", "group", "degrees"), tuple(rows))


def summary_table(angles: PilotAngles) -> Table:
    """By term and group: how many, mean, spread, share above 90 degrees and within 75 to 105."""
    rows: list[tuple[Value, ...]] = []
    for term in angles.terms:
        for group in angles.groups:
            _, degrees = angles.of(term, group)
            if not len(degrees):
                continue
            low, high = PUBLISHED_RANGE
            figures = (degrees.mean(), *np.percentile(degrees, (0, 5, 50, 95, 100)))
            inside = (degrees >= low) & (degrees <= high)
            rows.append(
                (
                    term,
                    group,
                    len(degrees),
                    *(round(float(value), 2) for value in figures),
                    round(float((degrees > 90.0).mean()), 4),
                    round(float(inside.mean()), 4),
                )
            )
    return Table(tuple(_COLUMNS.split()), tuple(rows))


def summary_text(angles: PilotAngles) -> str:
    """The summary for a terminal."""
    lines = [
        f"{'term':<11}{'group':<12}{'angles':>7}{'mean':>8}{'5 %':>8}{'median':>8}{'95 %':>8}"
        f"{'above 90°':>11}{'75°-105°':>10}"
    ]
    for row in summary_table(angles).rows:
        term, group, count, mean, _, low, median, high, _, above, inside = row
        lines.append(
            f"{term:<11}{group:<12}{count:>7}{mean:>8.1f}{low:>8.1f}{median:>8.1f}{high:>8.1f}"
            f"{above:>11.1%}{inside:>10.1%}"
        )
    return "\n".join(lines)
