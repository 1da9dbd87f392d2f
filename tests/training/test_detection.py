"""AUROC and false positives against scikit-learn, and intervals that cover what they should."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from training.detection import auroc, detection_draws, estimate, false_positive_rate

# Few distinct values, so that ties are common.
SCORES = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), min_size=1, max_size=30)


@given(others=SCORES, wanted=SCORES, recall=st.sampled_from([0.05, 0.5, 0.8, 0.95, 1.0]))
def test_both_measures_are_those_of_scikit_learn(
    others: list[float], wanted: list[float], recall: float
) -> None:
    scores = np.array(others + wanted)
    truth = np.array([0] * len(others) + [1] * len(wanted))
    found = auroc(np.array(others), np.array(wanted))
    assert found == pytest.approx(roc_auc_score(truth, scores))
    rates, recalls, _ = roc_curve(truth, scores, drop_intermediate=False)
    expected = rates[np.flatnonzero(recalls >= recall - 1e-12)[0]]
    assert false_positive_rate(np.array(others), np.array(wanted), recall) == pytest.approx(
        expected
    )


def test_by_hand() -> None:
    others, wanted = np.array([0.1, 0.2, 0.3, 0.8]), np.array([0.3, 0.7, 0.9, 1.0])
    # Of 16 pairs 13 are in order and one is a tie.
    assert auroc(others, wanted) == pytest.approx(13.5 / 16)
    # Three of four are found from 0.7 on, where one other is; the fourth costs a second one.
    assert false_positive_rate(others, wanted, 0.75) == 0.25
    assert false_positive_rate(others, wanted, 0.95) == 0.5


def test_a_draw_that_repeats_texts_is_that_of_repeated_texts() -> None:
    rng = np.random.default_rng(3)
    others, wanted = rng.normal(size=20).round(1), rng.normal(1.0, size=15).round(1)
    draws = detection_draws(others, wanted, recall=0.9, draws=5, seed=4)
    again = np.random.default_rng(4)
    for value, rate in zip(draws.auroc_draws, draws.false_positive_draws, strict=True):
        drawn_others = others[again.integers(20, size=20)]
        drawn_wanted = wanted[again.integers(15, size=15)]
        assert value == pytest.approx(auroc(drawn_others, drawn_wanted))
        assert rate == pytest.approx(false_positive_rate(drawn_others, drawn_wanted, 0.9))


def test_the_same_seed_compares_scores_on_the_same_texts() -> None:
    rng = np.random.default_rng(0)
    others, wanted = rng.normal(size=50), rng.normal(1.0, size=40)
    first, second = (
        detection_draws(scale * others, scale * wanted, recall=0.9, draws=20, seed=1)
        for scale in (1.0, 7.0)
    )
    assert np.array_equal(first.auroc_draws, second.auroc_draws)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    # Two normal distributions one standard deviation apart: AUROC is Phi(1 / sqrt 2) = 0.7602.
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(150):
        found = detection_draws(
            rng.normal(size=80), rng.normal(1.0, size=60), recall=0.95, draws=100, seed=0
        )
        interval = estimate(found.auroc, found.auroc_draws)
        covered += interval.low <= 0.7602 <= interval.high
    # 95 % of 150 is 142.5; the chance of fewer than 129 is below one in 100,000.
    assert 129 <= covered < 150


@pytest.mark.parametrize(("others", "wanted"), [([], [1.0]), ([1.0], []), ([float("nan")], [1.0])])
def test_what_cannot_be_compared_is_refused(others: list[float], wanted: list[float]) -> None:
    with pytest.raises(ValueError, match=r"texts|numbers"):
        auroc(np.array(others), np.array(wanted))


@pytest.mark.parametrize("recall", [0.0, -1.0, 1.01])
def test_a_recall_outside_is_refused(recall: float) -> None:
    with pytest.raises(ValueError, match="recall"):
        false_positive_rate(np.zeros(2), np.ones(2), recall)
