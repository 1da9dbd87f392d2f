"""Numbers of a quality-speed curve: its area, and the layers that it needs for a score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Curve = Sequence[tuple[float, float]]
_LEVELS = 50


def area_under_curve(curve: Curve, *, first_layer: float, last_layer: float) -> float:
    """Mean score over budgets of average layers, evenly between first_layer and last_layer.

    curve: pairs of average layers and score, in any order. A budget buys the best score at no
    more layers, by lines between the best points. Raises ValueError for an empty curve.
    """
    layers, scores = _best(curve)
    budgets = np.linspace(first_layer, last_layer, 500)
    return float(np.interp(budgets, layers, scores).mean())


def layers_for_score(curve: Curve, score: float) -> float | None:
    """Fewest average layers at which the curve reaches a score; None where it never does."""
    layers, scores = _best(curve)
    if score > scores[-1]:
        return None
    at = int(np.searchsorted(scores, score))
    if at == 0:
        return float(layers[0])
    share = (score - scores[at - 1]) / (scores[at] - scores[at - 1])
    return float(layers[at - 1] + share * (layers[at] - layers[at - 1]))


def layers_saved(curve: Curve, baseline: Curve) -> float | None:
    """Mean over scores that both reach of 1 - layers / the baseline's layers.

    Scores run evenly from the higher of both curves' lowest to the lower of both best ones; None
    where the curves share no score. Above 0 where the curve needs fewer layers.
    """
    own, other = _best(curve)[1], _best(baseline)[1]
    low, high = max(own[0], other[0]), min(own[-1], other[-1])
    if low > high:
        return None
    saved = []
    for score in np.linspace(low, high, _LEVELS):
        mine = layers_for_score(curve, float(score))
        theirs = layers_for_score(baseline, float(score))
        if mine is not None and theirs is not None:
            saved.append(1.0 - mine / theirs)
    return float(np.mean(saved)) if saved else None


def _best(curve: Curve) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Layers ascending, each with a better score than any at fewer layers."""
    if not curve:
        raise ValueError("a curve needs a point")
    layers: list[float] = []
    scores: list[float] = []
    for at, score in sorted(curve, key=lambda point: (point[0], -point[1])):
        if not scores or score > scores[-1]:
            layers.append(at)
            scores.append(score)
    return np.array(layers), np.array(scores)
