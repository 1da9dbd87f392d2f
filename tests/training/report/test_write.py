"""A written report: one page that asks for nothing, and files that hold the same numbers."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from PIL import Image

from training.report.numbers import Table
from training.report.style import INK, PAPER, drawing, panels
from training.report.write import Picture, write_report

NUMBERS = {
    "open": Table(("name", "share"), (("a,b", 1 / 3), ("<i>", None))),
    "closed": Table(("step", "degrees"), tuple((index, 0.1 * index) for index in range(100))),
}


@drawing
def draw(label: str) -> Figure:
    figure, (axes,) = panels(1)
    axes.plot([0, 1], [1, 0], color=INK, label=label)
    axes.set_title(label)
    figure.suptitle("A line that falls")
    return figure


def write(folder: Path, label: str = "x") -> str:
    pictures = [
        Picture(name=f"p{i}", heading="A <line>", caption="c & d", figure=draw(label), tables=t)
        for i, t in enumerate([("closed",), ()])
    ]
    page = write_report(folder, pictures, NUMBERS, title="T <1>", introduction="Read & see")
    assert page == folder / "report.html"
    return page.read_text(encoding="utf-8")


class Tags(HTMLParser):
    """Counts what is open, and gathers ids and references."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta",):
            self.open.append(tag)
        self._note(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(attrs)

    def _note(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            elif name in ("href", "src", "xlink:href"):
                self.references.append(str(value))
            self.references += re.findall(r"url\(([^)]*)\)", str(value))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("label", ["x", "see http://example.org/a.png -->", "$5 <b>"])
def test_the_page_is_well_formed_and_asks_for_nothing(label: str, tmp_path: Path) -> None:
    html = write(tmp_path, label)
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert len(tags.ids) == len(set(tags.ids)), "two pictures share no id"
    assert tags.references
    for reference in tags.references:
        assert reference.startswith("#"), f"{reference} lies outside the page"
        assert reference[1:] in tags.ids
    assert "//" not in html
    assert "<script" not in html
    assert "<img" not in html
    assert "@import" not in html


def test_the_page_is_readable_in_light_and_dark(tmp_path: Path) -> None:
    html = write(tmp_path)
    drawn = html[html.index("<body>") :]
    assert INK not in drawn
    assert PAPER not in drawn
    assert "stroke: var(--ink)" in drawn
    assert "prefers-color-scheme: dark" in html
    assert 'role="img" aria-label="A line that falls"' in html


def test_words_are_escaped_and_long_tables_are_cut(tmp_path: Path) -> None:
    html = write(tmp_path)
    assert "<h1>T &lt;1&gt;</h1>" in html
    assert "A &lt;line&gt;" in html
    assert "&lt;i&gt;" in html
    assert "40 more rows in closed.csv" in html
    assert html.index("0.3333") < html.index("<section"), "a table without picture stands on top"
    assert html.index("<h2>Open</h2>") < html.index("0.3333")


def test_files_hold_the_numbers_with_all_digits(tmp_path: Path) -> None:
    write(tmp_path)
    with (tmp_path / "open.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["name"] == "a,b"
    assert float(rows[0]["share"]) == 1 / 3
    assert rows[1]["share"] == ""
    content = json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))
    assert content["open"] == [{"name": "a,b", "share": 1 / 3}, {"name": "<i>", "share": None}]
    assert len(content["closed"]) == 100


def test_pictures_are_files_of_their_own_too(tmp_path: Path) -> None:
    write(tmp_path)
    with Image.open(tmp_path / "p0.png") as image:
        assert image.width > 800
    root = ElementTree.parse(tmp_path / "p0.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_the_same_report_is_the_same_byte_by_byte(tmp_path: Path) -> None:
    write(tmp_path / "one")
    write(tmp_path / "two")
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "two").iterdir())
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_name_that_is_no_file_name_is_refused() -> None:
    with pytest.raises(ValueError, match="will not do"):
        Picture(name="../x", heading="", caption="", figure=draw("x"))
    with pytest.raises(ValueError, match="1 values under 2 columns"):
        Table(("a", "b"), (("only",),))
