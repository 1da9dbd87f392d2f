"""Shares held out are as large as asked for, in every label, and drawn by the seed alone."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.example import LabelledExample
from training.data.hold_out import hold_out

SIZES = st.lists(st.integers(5, 60), min_size=2, max_size=12)
SHARE = st.floats(0.0, 0.3)


def _examples(sizes: list[int]) -> list[LabelledExample]:
    """Distinct texts, the labels mixed."""
    rows = [
        (f"{label} {row}", f"l{label}") for label, size in enumerate(sizes) for row in range(size)
    ]
    return [
        LabelledExample(text, label) for text, label in random.Random(0).sample(rows, len(rows))
    ]


@given(sizes=SIZES, first=SHARE, second=SHARE, seed=st.integers(0, 99))
def test_shares_of_distinct_texts_are_exact_to_one_text(
    sizes: list[int], first: float, second: float, seed: int
) -> None:
    examples = _examples(sizes)
    kept, held_out = hold_out(examples, {"validation": first, "calibration": second}, seed)
    for name, share in (("validation", first), ("calibration", second)):
        assert abs(len(held_out[name]) - share * len(examples)) <= 1
        by_label = Counter(example.label for example in held_out[name])
        for label, size in enumerate(sizes):
            assert abs(by_label[f"l{label}"] - share * size) < 1.5
    assert len(kept) + sum(map(len, held_out.values())) == len(examples)


@given(sizes=SIZES, seed=st.integers(0, 99))
def test_every_part_keeps_the_order_of_the_file(sizes: list[int], seed: int) -> None:
    examples = _examples(sizes)
    place = {example.text: row for row, example in enumerate(examples)}
    kept, held_out = hold_out(examples, {"validation": 0.2, "test": 0.2}, seed)
    for part in (kept, *held_out.values()):
        rows = [place[example.text] for example in part]
        assert rows == sorted(rows)


def test_seeds_draw_different_texts_and_one_seed_the_same() -> None:
    examples = _examples([30, 30])
    draws = [hold_out(examples, {"test": 0.3}, seed)[1]["test"] for seed in (1, 1, 2)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_a_text_under_two_labels_is_on_one_side() -> None:
    rows = [LabelledExample(f"t{row // 2}", "ab"[row % 2]) for row in range(40)]
    kept, held_out = hold_out(rows, {"test": 0.3}, 0)
    assert not {example.text for example in kept} & {example.text for example in held_out["test"]}
    assert held_out["test"]


def test_equal_texts_with_other_pairs_are_other_texts() -> None:
    rows = [LabelledExample("same", "ab"[row % 2], f"pair {row}") for row in range(40)]
    _, held_out = hold_out(rows, {"test": 0.25}, 0)
    assert len(held_out["test"]) == 10


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_only_text_of_a_label_stays_in_training(share: float) -> None:
    examples = [LabelledExample("rare", "a"), *_examples([20, 20])]
    kept, _ = hold_out(examples, {"test": share}, 0)
    assert examples[0] in kept
