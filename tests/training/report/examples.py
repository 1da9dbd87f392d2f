"""Outputs that look like real ones, and a check that a picture can be read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from multi_exit.confidence import normalised_entropy
from multi_exit.outcome import ExitOutputs

METHODS = ("ce", "ce+scl", "acl-embed", "acl-grad", "acl-cl", "self-distillation", "berxit")


def make_outputs(
    texts: int, exits: int, labels: int, seed: int = 0
) -> tuple[ExitOutputs, np.ndarray[Any, np.dtype[np.int64]]]:
    """Outputs whose deeper exits are surer and more often right, and the true labels."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(labels, size=texts)
    logits = rng.normal(size=(texts, exits, labels))
    for index in range(exits):
        logits[np.arange(texts), index, truth] += rng.exponential(1.0 + index, size=texts)
    flat = normalised_entropy(logits.reshape(-1, labels)).reshape(texts, exits)
    return ExitOutputs(logits.astype(np.float32), flat.astype(np.float32)), truth


def assert_readable(figure: Figure) -> None:
    """No two texts of a drawn figure overlap, none is cut off; a title says what is seen."""
    FigureCanvasAgg(figure).draw()
    texts = [(text.get_text(), text.get_window_extent()) for text in _drawn_texts(figure)]
    for words, box in texts:
        assert figure.bbox.padded(1).containsx(box.x0), f"{words!r} is cut off at the left"
        assert figure.bbox.padded(1).containsx(box.x1), f"{words!r} is cut off at the right"
        assert figure.bbox.padded(1).containsy(box.y0), f"{words!r} is cut off below"
        assert figure.bbox.padded(1).containsy(box.y1), f"{words!r} is cut off above"
    for (words, box), (others, other) in itertools.combinations(texts, 2):
        assert not _overlap(box, other), f"{words!r} overlaps {others!r}"
    assert figure.get_suptitle(), "a picture has a title"


def _overlap(box: Bbox, other: Bbox) -> bool:
    common = Bbox.intersection(box, other)
    # Boxes of letters with nothing below the line touch without a letter that does.
    return common is not None and common.width > 1 and common.height > 2


def _drawn_texts(figure: Figure) -> Iterator[Text]:
    not_drawn = {id(text) for axes in figure.axes for text in _ticks_out_of_view(axes)}
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_visible() and text.get_text().strip() and id(text) not in not_drawn:
            yield text


def _ticks_out_of_view(axes: Axes) -> Iterator[Text]:
    axis: Axis
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low <= tick.get_loc() <= high or not tick.get_visible():
                yield from (tick.label1, tick.label2)
            for label, shown in ((tick.label1, "label1On"), (tick.label2, "label2On")):
                if not getattr(tick, shown, label.get_visible()):
                    yield label
