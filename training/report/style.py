"""How all pictures look: colours, markers, grids of panels, and words on axes.

Colours are those of Okabe and Ito (2008), "Color Universal Design", which the colour-blind tell
apart; grey stands in for their yellow, which vanishes on white. Each goes with a marker and a line
style of its own, so that nothing hangs on colour alone. Figures are made without pyplot, so there
is no backend to choose and no window: they are drawn by Agg, or written as SVG.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.style import context
from matplotlib.ticker import FuncFormatter

# The page swaps these four for colours of its light or dark scheme (`page.py`).
INK, MUTED, FAINT, PAPER = "#1b1c1e", "#6c7077", "#dcdee1", "#fdfdfe"
BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PURPLE, SKY, GREY = "#cc79a7", "#56b4e9", "#8a8f98"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")

STYLE: dict[str, Any] = {
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.titlesize": 11.5,
    "figure.titleweight": "bold",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
    "text.color": INK,
    # A label called "$5" is no formula.
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "savefig.dpi": 160,
    # The same picture gives the same SVG, byte by byte.
    "svg.hashsalt": "patamar",
}

# "default" first: whoever has a matplotlibrc still gets the same pictures.
drawing = context(["default", STYLE])


@dataclass(frozen=True, slots=True)
class LineStyle:
    """How one method, rule or label is drawn in every picture."""

    colour: str
    marker: str
    dashes: str | tuple[int, tuple[float, ...]] = "-"

    def keywords(self) -> dict[str, Any]:
        """What `Axes.plot` takes."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.dashes,
            "markeredgecolor": PAPER,
            "markeredgewidth": 0.5,
        }


_LINES = (
    LineStyle(INK, "o", "--"),
    LineStyle(VERMILION, "s"),
    LineStyle(BLUE, "^"),
    LineStyle(GREEN, "D", "-."),
    LineStyle(ORANGE, "v"),
    LineStyle(PURPLE, "P", (0, (5, 1, 1, 1, 1, 1))),
    LineStyle(SKY, "X", "-."),
    LineStyle(GREY, "h", ":"),
)
# Fixed, so that a method keeps its colour whichever others are drawn with it.
_METHODS = (
    "ce",
    "acl-cl",
    "acl-grad",
    "acl-embed",
    "ce+scl",
    "self-distillation",
    "deebert",
    "berxit",
)
_RULES = ("entropy", "patience", "margin", "maximum", "label_distance")
_METRIC_LABELS = {
    "accuracy": ("accuracy", "%"),
    "f1": ("F1", "%"),
    "matthews": ("Matthews correlation", "× 100"),
}


def method_styles(methods: Iterable[str]) -> dict[str, LineStyle]:
    """Style by method, in the order in which legends name them."""
    return _styles(_METHODS, methods)


def rule_styles(rules: Iterable[str]) -> dict[str, LineStyle]:
    """Style by exit rule, in the order in which legends name them."""
    return _styles(_RULES, rules)


def _styles(known: Sequence[str], names: Iterable[str]) -> dict[str, LineStyle]:
    present = set(names)
    fixed = dict(zip(known, _LINES, strict=False))
    free = [style for style in _LINES if style not in {fixed.get(name) for name in present}]
    others = sorted(present - set(known))
    spare = {name: (free or _LINES)[i % len(free or _LINES)] for i, name in enumerate(others)}
    return {name: fixed[name] for name in known if name in present} | spare


def exit_colours(exits: int) -> list[str]:
    """A colour an exit, dark for shallow to light for deep (cividis, made for the colour-blind)."""
    scale = mpl.colormaps["cividis"]
    shares = [0.15 + 0.85 * i / max(1, exits - 1) for i in range(exits)]
    return [mpl.colors.to_hex(scale(share)) for share in shares]


def columns_of(count: int, most: int) -> int:
    """Columns of a grid with the fewest rows, and in these as few holes as can be."""
    rows = -(-count // most)
    return -(-count // rows)


def panels(
    count: int, *, columns: int = 3, width: float = 3.3, height: float = 2.7
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` axes, row by row; width and height of a panel in inches."""
    columns = columns_of(count, columns)
    rows = -(-count // columns)
    # A lone panel needs room for the title and the legend, which are as wide as ever.
    inches = max(width * columns, 5.6)
    figure = Figure(figsize=(inches, height * rows + 0.7), layout="constrained")
    axes = [figure.add_subplot(rows, columns, index + 1) for index in range(count)]
    return figure, axes


def headline(figure: Figure, text: str) -> None:
    """The figure's title, in as many lines as its width asks for; breaks after a colon if any."""
    letters = int(figure.get_figwidth() * 9.5)
    if len(text) > letters and "\n" not in text:
        text = text.replace(": ", ":\n", 1)
    figure.suptitle("\n".join(fill(line, letters) for line in text.split("\n")))


def legend_below(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, under them; each name once, in order of appearance."""
    found: dict[str, Any] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    width = figure.get_figwidth()
    longest = max(map(len, found), default=1)
    fitting = max(1, int(width / (0.75 + 0.072 * longest)))
    figure.legend(
        list(found.values()),
        list(found),
        loc="outside lower center",
        # Rows of about equal length.
        ncols=-(-len(found) // -(-len(found) // fitting)),
        handlelength=3,
    )


def score_axis(axes: Axes, metric: str) -> None:
    """Names the vertical axis after the metric; ticks in points of 100."""
    name, unit = _METRIC_LABELS[metric]
    axes.set_ylabel(f"{name[0].upper()}{name[1:]} ({unit})")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.10g}"))


def gain_axis(axes: Axes, metric: str) -> None:
    """Names the vertical axis after differences of the metric, in points of 100."""
    # "Matthews correlation" in full would be longer than a panel is high.
    axes.set_ylabel(f"Gain in {_METRIC_LABELS[metric][0].split()[0]} (points)")


def layer_axis(axes: Axes, exits: Sequence[int]) -> None:
    """Names the axis; ticks at the exit layers, every second or third where there are many."""
    axes.set_xlabel("Exit layer")
    step = -(-len(exits) // 12)
    axes.set_xticks(list(exits)[::-1][::step][::-1])


def readable(text: str, length: int = 30) -> str:
    """A name as one line that fits and that the font can show.

    A long one loses its middle, because labels often begin alike; characters that the font lacks
    become boxes.
    """
    font = get_font(findfont(FontProperties(family="DejaVu Sans")))
    line = " ".join(text.split())
    shown = "".join(c if font.get_char_index(ord(c)) else "□" for c in line)
    # Legends leave out names with an underscore in front.
    shown = f" {shown}" if shown.startswith("_") else shown
    if len(shown) <= length:
        return shown
    end = length // 2
    return f"{shown[: length - end - 1]}…{shown[-end:]}"
