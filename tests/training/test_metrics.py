"""Scores against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from training.metrics import score

TRUE = np.array([1, 1, 1, 0, 0, 0, 1, 0])
SAID = np.array([1, 0, 1, 0, 1, 0, 1, 1])


def test_accuracy_f1_and_matthews_follow_their_definitions() -> None:
    hit, false_alarm, missed, rejected = 3, 2, 1, 2
    assert score("accuracy", TRUE, SAID, classes=2) == pytest.approx(5 / 8)
    assert score("f1", TRUE, SAID, classes=2) == pytest.approx(2 * hit / (2 * hit + 3))
    product = hit * rejected - false_alarm * missed
    assert score("matthews", TRUE, SAID, classes=2) == pytest.approx(
        product / math.sqrt(5 * 4 * 4 * 3)
    )


def test_f1_of_more_labels_is_the_mean_over_them() -> None:
    true, said = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])
    assert score("f1", true, said, classes=3) == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    # Two of three labels occur here: still a mean, and not that of label 1.
    true, said = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    assert score("f1", true, said, classes=3) == pytest.approx((4 / 5 + 2 / 3) / 2)


def test_answering_one_label_always_is_worth_nothing_to_matthews() -> None:
    assert score("matthews", TRUE, np.ones_like(TRUE), classes=2) == 0.0
    assert score("f1", TRUE, np.zeros_like(TRUE), classes=2) == 0.0
