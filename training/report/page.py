"""One self-contained HTML page: pictures as inline SVG, numbers as tables, light and dark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from training.report.numbers import Table, Value
from training.report.style import FAINT, INK, MUTED, PAPER

_ROWS_SHOWN = 60
_SCHEME = {INK: "var(--ink)", MUTED: "var(--muted)", FAINT: "var(--faint)", PAPER: "var(--paper)"}

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #1b1c1e; --muted: #6c7077; --faint: #dcdee1;
  --paper: #fdfdfe; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e9eaec; --muted: #a2a7af; --faint: #34383f;
  --paper: #1a1c20; }} }}
body {{ background: var(--paper); color: var(--ink); margin: 0 auto; max-width: 62rem;
  padding: 1.5rem; font: 1rem/1.5 system-ui, sans-serif; }}
figure {{ margin: 0; }}
section {{ border-top: 1px solid var(--faint); margin-top: 2rem; }}
svg {{ display: block; height: auto; margin: 0 auto; max-width: 100%; }}
figcaption, .note {{ color: var(--muted); max-width: 46rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }}
th, td {{ border-bottom: 1px solid var(--faint); padding: .2rem .7rem .2rem 0; text-align: left;
  vertical-align: top; }}
td.number, th.number {{ text-align: right; }}
summary {{ cursor: pointer; margin-top: .7rem; }}
</style>
</head>
<body>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One picture on the page. svg: a whole file of matplotlib. alt: what the picture shows.

    tables: names of the tables with its numbers.
    """

    name: str
    heading: str
    caption: str
    alt: str
    svg: str
    tables: tuple[str, ...]


def make_page(
    title: str, introduction: str, sections: Sequence[Section], tables: Mapping[str, Table]
) -> str:
    """The page as HTML. Tables that no section names stand open at the top."""
    named = {name for section in sections for name in section.tables}
    parts = [_HEAD.format(title=escape(title)), f"<h1>{escape(title)}</h1>"]
    parts.append(f'<p class="note">{escape(introduction)}</p>')
    for name, table in tables.items():
        if name not in named:
            parts.append(f"<h2>{escape(name.replace('_', ' ').capitalize())}</h2>{_table(table)}")
    for section in sections:
        parts.append(
            f'<section id="{section.name}">\n<h2>{escape(section.heading)}</h2>\n<figure>'
            f"{inline_svg(section.svg, section.name, section.alt)}"
            f"<figcaption>{escape(section.caption)}</figcaption></figure>"
        )
        parts += [_details(name, tables[name]) for name in section.tables]
        parts.append("</section>")
    return "\n".join([*parts, "</body>", "</html>", ""])


def inline_svg(svg: str, name: str, alt: str) -> str:
    """An SVG file of matplotlib as an element of a page.

    Namespaces, comments and metadata go; ids get a prefix, because a page has many pictures; the
    four neutral colours become those of the page's scheme.
    """
    element = svg[svg.index("<svg") :].strip()
    element = re.sub(r"<!--.*?-->", "", element, flags=re.DOTALL)
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", element).replace("xlink:href=", "href=")
    element = re.sub(r'(\sid="|href="#|url\(#)', rf"\g<1>{name}-", element)
    for colour, variable in _SCHEME.items():
        element = element.replace(colour, variable)
    label = escape(alt, quote=True)
    return element.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _details(name: str, table: Table) -> str:
    shown = _table(Table(table.columns, table.rows[:_ROWS_SHOWN]))
    more = len(table.rows) - _ROWS_SHOWN
    note = f'<p class="note">{more:,} more rows in {name}.csv</p>' if more > 0 else ""
    summary = f"Numbers: {escape(name)}.csv, {len(table.rows):,} rows"
    return f"<details><summary>{summary}</summary>{shown}{note}</details>"


def _table(table: Table) -> str:
    numeric = [
        any(isinstance(row[index], int | float) for row in table.rows)
        for index in range(len(table.columns))
    ]
    kinds = [' class="number"' if is_number else "" for is_number in numeric]
    head = "".join(
        f"<th{kind}>{escape(column.replace('_', ' '))}</th>"
        for kind, column in zip(kinds, table.columns, strict=True)
    )
    rows = (
        "".join(
            f"<td{kind}>{escape(_shown(value))}</td>"
            for kind, value in zip(kinds, row, strict=True)
        )
        for row in table.rows
    )
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n{body}</table></div>'


def _shown(value: Value) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
