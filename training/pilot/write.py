"""Writes a pilot experiment: page, pictures, and the numbers as JSON and CSV."""

from __future__ import annotations

from pathlib import Path

from training.pilot.figures import curve_figure, histogram_figure
from training.pilot.run import PilotAngles
from training.pilot.tables import angles_table, summary_table
from training.report.write import Picture, write_report


def write_pilot(angles: PilotAngles, output: Path, *, title: str) -> Path:
    """Writes report.html, numbers.json, angles.csv, summary.csv and two pictures; the page."""
    pictures = (
        Picture(
            name="angle-histogram",
            heading="How angles are spread",
            caption="Each mini-batch's angle between the gradient of cross-entropy and that of the "
            "contrastive term, at all parameters. Above 90° the two pull against each other.",
            figure=histogram_figure(angles),
            tables=("summary",),
        ),
        Picture(
            name="angle-curve",
            heading="How angles go over training",
            caption="Moving mean at all parameters; the band reaches from the group (embeddings, a "
            "layer, an exit) of the smallest to that of the largest.",
            figure=curve_figure(angles),
        ),
    )
    numbers = {"summary": summary_table(angles), "angles": angles_table(angles)}
    return write_report(output, pictures, numbers, title=title)
