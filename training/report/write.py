"""Writes a report: one HTML page, every picture as PNG and SVG, the numbers as JSON and CSV."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from training.report.numbers import Table, to_json
from training.report.page import Section, make_page
from training.report.style import drawing

PAGE_FILE = "report.html"
NUMBERS_FILE = "numbers.json"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picture:
    """A figure and what a page says about it.

    name: of its files and its anchor. heading: its topic. caption: how to read it. tables: names of
    the tables that hold its numbers. Raises ValueError for a name of other signs than a-z 0-9 _ -.
    """

    name: str
    heading: str
    caption: str
    figure: Figure
    tables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z0-9_-]+", self.name):
            raise ValueError(f"a picture's name becomes a file's; {self.name!r} will not do")


def write_report(
    output_folder: Path,
    figures: Sequence[Picture],
    numbers: Mapping[str, Table],
    *,
    title: str = "Report",
    introduction: str = "",
) -> Path:
    """Writes NAME.png and NAME.svg, NAME.csv a table, numbers.json and report.html, returned.

    The page holds everything and asks for nothing: it can be mailed. Tables that no picture names
    stand at its top. Files of an earlier report in the folder are written over. The SVG files are
    the same, byte by byte, for the same figures and the same matplotlib.
    """
    output_folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for picture in figures:
        svg = to_svg(picture.figure)
        _write(output_folder / f"{picture.name}.svg", svg)
        _save_png(picture.figure, output_folder / f"{picture.name}.png")
        sections.append(
            Section(
                name=picture.name,
                heading=picture.heading,
                caption=picture.caption,
                alt=picture.figure.get_suptitle() or picture.heading,
                svg=svg,
                tables=picture.tables,
            )
        )
    for name, table in numbers.items():
        _write(output_folder / f"{name}.csv", table.to_csv())
    _write(output_folder / NUMBERS_FILE, to_json(numbers))
    page = output_folder / PAGE_FILE
    _write(page, make_page(title, introduction, sections, numbers))
    return page


@drawing
def to_svg(figure: Figure) -> str:
    """The figure as an SVG file: letters as outlines, no date, ids that depend on content alone."""
    content = io.StringIO()
    # Each of these would bring a date, a version or an address into the file.
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(content, format="svg", metadata=nothing)
    return content.getvalue()


@drawing
def _save_png(figure: Figure, path: Path) -> None:
    figure.savefig(path, format="png", metadata={"Software": None})


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
