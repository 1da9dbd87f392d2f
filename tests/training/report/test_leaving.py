"""Where texts leave: against loops over texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.report.examples import assert_readable, make_outputs
from training.report.leaving import (
    leaving_by_class,
    leaving_by_length,
    leaving_figure,
    leaving_table,
    threshold_at_layers,
)


@settings(deadline=None)
@given(
    texts=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(1, 30)), min_size=1, max_size=60
    )
)
def test_shares_equal_a_loop_and_no_length_is_divided(texts: list[tuple[int, int, int]]) -> None:
    taken, labels, lengths = (np.array(column) for column in zip(*texts, strict=True))
    names = ["a", "b", "c", "d", "e"]
    by_class = leaving_by_class(taken, labels, names, 3)
    for group in by_class:
        own = [exit_index for exit_index, label, _ in texts if names[label] == group.name]
        assert group.texts == len(own)
        assert group.shares.tolist() == [own.count(index) / len(own) for index in range(3)]
    assert [group.name for group in by_class] == [
        name for index, name in enumerate(names) if index in labels
    ]
    by_length = leaving_by_length(taken, lengths, 3)
    assert 1 <= len(by_length) <= 5
    assert sum(group.texts for group in by_length) == len(texts)
    last = 0
    for group in by_length:
        bounds = [int(word) for word in group.name.split() if word.isdigit()]
        assert last < bounds[0] <= bounds[-1], "buckets ascend and share no length"
        last = bounds[-1]
        own = [exit_index for exit_index, _, n in texts if bounds[0] <= n <= bounds[-1]]
        assert group.shares.tolist() == [own.count(index) / len(own) for index in range(3)]


def test_many_different_lengths_fall_into_five_buckets_of_about_equal_size() -> None:
    lengths = np.random.default_rng(0).permutation(100) + 3
    found = leaving_by_length(np.zeros(100, dtype=np.int64), lengths, 2)
    assert [group.texts for group in found] == [20] * 5
    assert found[0].name == "3 to 22 tokens"


def test_the_threshold_runs_about_as_many_layers_as_asked() -> None:
    outputs, _ = make_outputs(400, 4, 3)
    exits = (1, 2, 3, 6)
    threshold, outcome = threshold_at_layers(outputs, exits, 3.0)
    assert outcome.average_layers == pytest.approx(3.0, abs=0.05)
    run = 0
    for entropies in outputs.entropy:
        run += next((e for e, value in zip(exits, entropies, strict=True) if value < threshold), 6)
    assert outcome.average_layers == pytest.approx(run / 400)
    assert threshold_at_layers(outputs, exits, 99.0)[1].average_layers == 6.0
    alone = make_outputs(20, 1, 3)[0]
    assert threshold_at_layers(alone, (2,), 1.0)[1].average_layers == 2.0


@pytest.mark.parametrize(("classes", "exits"), [(2, 12), (5, 1), (40, 6)])
def test_no_words_overlap_or_are_cut_off(classes: int, exits: int) -> None:
    outputs, labels = make_outputs(900, exits, classes)
    layers = tuple(range(1, exits + 1))
    threshold, outcome = threshold_at_layers(outputs, layers, exits / 2)
    names = [f"why_was_my_card_payment_declined_{index}" for index in range(classes)]
    lengths = np.random.default_rng(0).integers(5, 60, size=900)
    by_class = leaving_by_class(outcome.taken, labels, names, exits)
    by_length = leaving_by_length(outcome.taken, lengths, exits)
    figure = leaving_figure(by_class, by_length, layers, threshold=threshold, outcome=outcome)
    assert_readable(figure)
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(shown) == min(classes, 20)
    assert ("of 40" in figure.axes[0].get_title(loc="left")) == (classes == 40)


def test_the_table_gives_layers_and_shares() -> None:
    taken = np.array([0, 0, 1, 1])
    groups = leaving_by_class(taken, np.array([0, 0, 0, 1]), ["x", "y"], 2)
    table = leaving_table(groups, (2, 6))
    assert table.columns == ("group", "texts", "average_layers", "exit_2", "exit_6")
    assert table.rows[0] == (
        "x",
        3,
        pytest.approx(10 / 3),
        pytest.approx(2 / 3),
        pytest.approx(1 / 3),
    )
    assert table.rows[1] == ("y", 1, 6.0, 0.0, 1.0)
