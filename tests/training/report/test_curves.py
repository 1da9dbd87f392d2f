"""Mean curves: against a slow reading of every seed's curve."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multi_exit.errors import DataError
from training.experiment.cell import Points
from training.report.curves import mean_curve

CURVES = st.lists(
    st.lists(
        st.tuples(st.integers(2, 23).map(lambda layers: layers / 2), st.floats(0, 1)),
        max_size=6,
    ).map(lambda inner: ((12.0, 0.9), *inner, (1.0, 0.2))),
    min_size=1,
    max_size=4,
)


def read_slowly(points: Points, at: float) -> float:
    """Score of one curve at `at` layers, by a walk along its points."""
    merged: dict[float, list[float]] = {}
    for layers, score in points:
        merged.setdefault(layers, []).append(score)
    known = sorted((layers, sum(values) / len(values)) for layers, values in merged.items())
    for (x, y), (next_x, next_y) in itertools.pairwise(known):
        if x <= at <= next_x:
            return y + (next_y - y) * (at - x) / (next_x - x)
    raise AssertionError(f"{at} is outside the curve")


@settings(deadline=None, max_examples=50)
@given(curves=CURVES)
def test_the_mean_curve_equals_a_walk_along_every_curve(curves: list[Points]) -> None:
    found = mean_curve(curves)
    assert found.layers[0] == 1.0
    assert found.layers[-1] == 12.0
    for index, layers in enumerate(found.layers):
        values = [read_slowly(points, float(layers)) for points in curves]
        assert found.mean[index] == pytest.approx(np.mean(values), abs=1e-12)
        if found.deviation is not None:
            assert found.deviation[index] == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    assert (found.deviation is None) == (len(curves) == 1)


def test_a_curve_ends_where_one_seed_ends() -> None:
    found = mean_curve([((2.0, 0.5), (6.0, 0.9)), ((3.0, 0.6), (5.0, 0.8))])
    assert (found.layers[0], found.layers[-1]) == (3.0, 5.0)


def test_one_point_is_a_curve_and_curves_apart_are_none() -> None:
    assert mean_curve([((3.0, 0.5),)]).mean.tolist() == [0.5]
    with pytest.raises(DataError, match="no range in common"):
        mean_curve([((1.0, 0.5),), ((2.0, 0.5),)])
