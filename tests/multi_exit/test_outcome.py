"""Whole sets under a policy: each row leaves where `Policy.exit_index` says, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from multi_exit.errors import PolicyError
from multi_exit.outcome import ExitOutputs, policy_outcome
from multi_exit.policy import Policy

# Tenths meet thresholds that float32 rounds up as well as down.
ENTROPY = st.sampled_from([n / 10 for n in range(11)] + [float("nan")]) | st.floats(0, 1, width=32)
SETS = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=ENTROPY.map(np.float32)
)


@given(SETS, st.data())
def test_a_set_leaves_row_by_row_as_the_policy_says(
    entropy: np.ndarray, data: st.DataObject
) -> None:
    exits = entropy.shape[1]
    near = [n / 10 for n in range(11)] + entropy[np.isfinite(entropy)].astype(float).tolist()
    thresholds = data.draw(st.lists(st.sampled_from(near), min_size=exits, max_size=exits))
    last_exit = data.draw(st.none() | st.integers(0, exits - 1))
    policy = Policy(tuple(thresholds), last_exit)
    outputs = ExitOutputs(np.zeros((*entropy.shape, 2), np.float32), entropy)
    taken = outputs.exits_taken(policy).tolist()
    assert taken == [policy.exit_index(row.tolist()) for row in entropy]
    # Rows handed over as numpy's float32, too, leave at the same exit.
    assert taken == [policy.exit_index(list(row)) for row in entropy]


@pytest.mark.parametrize("exits", [1, 2, 4])
def test_a_policy_of_another_number_of_exits_is_refused(exits: int) -> None:
    outputs = ExitOutputs(np.zeros((5, 3, 2), np.float32), np.zeros((5, 3), np.float32))
    with pytest.raises(PolicyError, match=f"{exits} exits"):
        outputs.exits_taken(Policy.constant(0.5, exits))


def test_an_outcome_counts_layers_agreement_and_accuracy() -> None:
    logits = np.array([[[1, 0], [0, 1]], [[0, 1], [0, 1]], [[0, 1], [1, 0]]], np.float32)
    outputs = ExitOutputs(logits, np.array([[0.1, 0.9], [0.9, 0.9], [0.1, 0.0]], np.float32))
    outcome = policy_outcome(outputs, Policy.constant(0.5, 2), (2, 6))
    assert outcome.taken.tolist() == [0, 1, 0]
    assert outcome.answered.tolist() == [0, 1, 1]
    assert outcome.average_layers == pytest.approx(10 / 3)
    assert outcome.speedup == pytest.approx(6 / (10 / 3))
    assert outcome.disagreements == 2
    assert outcome.agreement == pytest.approx(1 / 3)
    assert outcome.accuracy(np.array([0, 0, 1])) == pytest.approx(2 / 3)
