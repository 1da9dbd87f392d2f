"""Areas and layers at a score, against slow readings of the same curves."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from training.experiment.curves import area_under_curve, layers_for_score, layers_saved

Points = list[tuple[float, float]]

POINTS = st.lists(
    st.tuples(
        st.integers(0, 40).map(lambda steps: 1 + steps / 8),
        st.integers(0, 20).map(lambda steps: steps / 20),
    ),
    min_size=1,
    max_size=12,
)


def frontier(curve: Points) -> Points:
    """Points that no other beats at as few layers, by looking at all pairs."""
    kept = []
    for layers, score in sorted(set(curve)):
        beaten = any(
            (other_score > score and other <= layers) or (other_score >= score and other < layers)
            for other, other_score in curve
        )
        if not beaten:
            kept.append((layers, score))
    return kept


def score_at(curve: Points, budget: float) -> float:
    """Score that a budget of layers buys, by a walk along the best points."""
    best = frontier(curve)
    if budget <= best[0][0]:
        return best[0][1]
    for (x, y), (next_x, next_y) in itertools.pairwise(best):
        if x <= budget <= next_x:
            return y + (next_y - y) * (budget - x) / (next_x - x)
    return best[-1][1]


@given(curve=POINTS)
def test_the_area_is_the_mean_of_a_slow_reading(curve: Points) -> None:
    budgets = [1 + 5 * index / 499 for index in range(500)]
    expected = sum(score_at(curve, budget) for budget in budgets) / len(budgets)
    found = area_under_curve(curve, first_layer=1, last_layer=6)
    assert found == pytest.approx(expected, abs=1e-9)


def test_areas_known_by_hand() -> None:
    assert area_under_curve([(1, 0.5), (3, 0.9)], first_layer=1, last_layer=3) == pytest.approx(0.7)
    # A worse point in the middle is not bought.
    dented = [(1, 0.5), (2, 0.1), (3, 0.9)]
    assert area_under_curve(dented, first_layer=1, last_layer=3) == pytest.approx(0.7)
    assert area_under_curve([(2, 0.8)], first_layer=1, last_layer=6) == pytest.approx(0.8)
    with pytest.raises(ValueError, match="needs a point"):
        area_under_curve([], first_layer=1, last_layer=2)


@given(curve=POINTS, score=st.floats(0, 1))
def test_layers_for_a_score_are_the_fewest_that_buy_it(curve: Points, score: float) -> None:
    found = layers_for_score(curve, score)
    best = frontier(curve)
    if score > best[-1][1]:
        assert found is None
        return
    assert found is not None
    assert score_at(curve, found) >= score - 1e-9
    # A little less buys less, unless the cheapest point is enough.
    if found > best[0][0] + 1e-6:
        assert score_at(curve, found - 1e-6) < score


@given(curve=POINTS, factor=st.floats(0.2, 1.0))
def test_a_curve_that_needs_a_share_of_the_layers_saves_the_rest(
    curve: Points, factor: float
) -> None:
    shorter = [(factor * layers, score) for layers, score in curve]
    assert layers_saved(shorter, curve) == pytest.approx(1 - factor, abs=1e-9)
    assert layers_saved(curve, curve) == pytest.approx(0.0, abs=1e-12)


@given(curve=POINTS, baseline=POINTS)
def test_layers_saved_equals_a_loop_over_scores(curve: Points, baseline: Points) -> None:
    own, other = frontier(curve), frontier(baseline)
    low, high = max(own[0][1], other[0][1]), min(own[-1][1], other[-1][1])
    found = layers_saved(curve, baseline)
    if low > high:
        assert found is None
        return
    levels = [low + (high - low) * index / 49 for index in range(50)]
    pairs = [(layers_for_score(curve, s), layers_for_score(baseline, s)) for s in levels]
    # A level above the best score by rounding alone has no layers.
    assume(all(mine is not None and theirs is not None for mine, theirs in pairs))
    expected = [1 - mine / theirs for mine, theirs in pairs if mine and theirs]
    assert found == pytest.approx(sum(expected) / 50, abs=1e-6)


def test_curves_without_a_score_in_common_save_nothing_known() -> None:
    assert layers_saved([(1, 0.9)], [(1, 0.5), (6, 0.8)]) is None
