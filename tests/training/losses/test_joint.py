"""The total loss against its formula, written out exit by exit."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from training.losses.joint import ExitTerms, Gate, joint_loss, open_gate

TERM = st.floats(0, 10, width=32)
SWITCH = st.sampled_from([0.0, 1.0])


@given(
    exits=st.lists(st.tuples(TERM, TERM, TERM, TERM, SWITCH, SWITCH), min_size=1, max_size=4),
    contrastive_weight=st.floats(0, 2, width=32),
    teacher_weight=st.floats(0, 2, width=32),
)
def test_equals_the_formula_exit_by_exit(
    exits: list[tuple[float, ...]], contrastive_weight: float, teacher_weight: float
) -> None:
    weights, entropy, contrastive, teacher, gate, teacher_gate = map(
        torch.tensor, zip(*exits, strict=True)
    )
    total = joint_loss(
        ExitTerms(entropy, contrastive, teacher[:-1]),
        Gate(gate, teacher_gate[:-1]),
        weights=weights,
        contrastive_weight=contrastive_weight,
        teacher_weight=teacher_weight,
    )
    expected = 0.0
    for index, (w, ce, acl, cl, keep, keep_teacher) in enumerate(exits):
        expected += w * (ce + contrastive_weight * keep * acl)
        if index < len(exits) - 1:
            expected += teacher_weight * w * keep_teacher * cl
    assert math.isclose(total.item(), expected, rel_tol=1e-5, abs_tol=1e-5)


def test_terms_that_a_method_does_not_have_cost_nothing() -> None:
    total = joint_loss(
        ExitTerms(torch.tensor([1.0, 2.0])),
        open_gate(2, torch.device("cpu")),
        weights=torch.tensor([0.5, 0.5]),
        contrastive_weight=1.0,
        teacher_weight=1.0,
    )
    assert total.item() == 1.5
