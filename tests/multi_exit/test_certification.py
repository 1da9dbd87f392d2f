"""Walking a path: where it stops, for whom the promise holds, and how many texts it takes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_exit.certification import Certifier, fewest_texts
from multi_exit.outcome import ExitAnswers, LabelledOutputs
from multi_exit.policy import Policy

PATH = tuple(Policy((threshold, 0.0)) for threshold in (0.15, 0.25, 0.35, 0.45))


def _texts(wrong: tuple[int, ...], each: int = 500) -> LabelledOutputs:
    """Policy number i lets `each` more texts leave at exit 1, `wrong[i]` of them mistaken."""
    entropy = np.repeat([[0.1 * (i + 1), 0.0] for i in range(len(wrong))], each, axis=0)
    labels = np.zeros((len(entropy), 2), dtype=np.int64)
    for index, count in enumerate(wrong):
        labels[index * each : index * each + count, 0] = 1
    return LabelledOutputs(ExitAnswers(labels, entropy.astype(np.float32)), labels[:, 1])


def test_the_walk_stops_at_the_first_policy_that_fails() -> None:
    # 2,000 texts: 28 errors reject 2 % at 5 %, 40 do not.
    certifier = Certifier(PATH, _texts((0, 20, 20, 0)), epsilons=(0.02,), delta=0.05)
    assert certifier.fastest("consistency", 0.02) == 1
    assert [c.errors for c in certifier.of(1) if c.kind == "consistency"] == [20]
    assert not any(c.kind == "consistency" for place in (2, 3) for c in certifier.of(place))


def test_nothing_passes_where_the_first_policy_fails_even_if_a_later_one_would() -> None:
    # A text that the first policy gets wrong may be right at a faster one.
    texts = _texts((60, 0, 0, 0))
    right = np.zeros(2000, np.int64)
    labels = np.column_stack([right, texts.outputs.labels[:, 0], right])
    entropy = np.column_stack([np.full(2000, 0.9), texts.outputs.entropy]).astype(np.float32)
    path = (Policy((0.0, 0.15, 0.0)), Policy((1.0, 0.15, 0.0)))
    known = LabelledOutputs(ExitAnswers(labels, entropy))
    certifier = Certifier(path, known, epsilons=(0.01,), delta=0.05)
    assert certifier.fastest("consistency", 0.01) is None
    assert certifier.of(1) == ()


def test_a_promise_for_a_class_is_the_slowest_of_both() -> None:
    texts = _texts((0, 0, 5, 0))
    # The mistaken texts are nearly all of a class of 350.
    truth = np.where(np.arange(2000) % 1000 < 175, 1, 0)
    labels = np.column_stack([np.where(texts.outputs.labels[:, 0] == 1, 2, truth), truth])
    known = LabelledOutputs(ExitAnswers(labels, texts.outputs.entropy))
    plain = Certifier(PATH, known, epsilons=(0.01,), delta=0.05)
    careful = Certifier(PATH, known, epsilons=(0.01,), delta=0.05, classes={"b": 1})
    assert plain.fastest("consistency", 0.01) == 3
    assert careful.fastest("consistency", 0.01) == 1
    assert {c.label for c in careful.of(1)} == {None, "b"}
    assert {c.samples for c in careful.of(1) if c.label == "b"} == {350}


def test_promises_are_listed_by_rising_epsilon_and_accuracy_only_with_labels() -> None:
    texts = _texts((0, 0, 0, 0))
    kinds = ("consistency", "expected_disagreement", "accuracy_drop")
    with_labels = Certifier(PATH, texts, epsilons=(0.02, 0.01), delta=0.05)
    assert with_labels.promises == tuple((kind, e) for e in (0.01, 0.02) for kind in kinds)
    without = Certifier(PATH, LabelledOutputs(texts.outputs), epsilons=(0.01,), delta=0.05)
    assert [kind for kind, _ in without.promises] == ["consistency", "expected_disagreement"]


@given(st.floats(1e-4, 0.5), st.floats(1e-6, 0.5))
def test_the_fewest_texts_are_just_enough(epsilon: float, delta: float) -> None:
    fewest = fewest_texts(epsilon, delta)
    assert fewest * math.log1p(-epsilon) <= math.log(delta) + 1e-9
    assert fewest == 1 or (fewest - 1) * math.log1p(-epsilon) > math.log(delta) - 1e-9


@pytest.mark.parametrize(
    ("epsilon", "delta", "fewest"), [(0.01, 0.05, 299), (0.05, 0.05, 59), (0.5, 0.25, 2)]
)
def test_known_numbers_of_texts(epsilon: float, delta: float, fewest: int) -> None:
    assert fewest_texts(epsilon, delta) == fewest
