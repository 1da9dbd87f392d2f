"""What int8 costs a stage, counted by hand, and stages that cost too much."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.qdq import activation_ranges, write_int8
from export.sensitivity import (
    StageCost,
    affordable,
    int8_file,
    keep_chosen,
    mixed,
    outputs_of,
    stage_cost,
    stage_costs,
)
from multi_exit.bundle import Bundle
from multi_exit.outcome import ExitOutputs
from multi_exit.text_encoder import TextInput
from tests.conftest import toy_rows
from tests.export.spoiled_graph import write_spoiled_int8


def _random_outputs(seed: int) -> ExitOutputs:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(9, 4, 3)).astype(np.float32)
    return ExitOutputs(logits, np.zeros((9, 4), dtype=np.float32))


@given(st.integers(0, 1000), st.integers(1, 4))
def test_a_cost_is_what_loops_over_texts_and_exits_count(seed: int, stage: int) -> None:
    alone, reference = _random_outputs(seed), _random_outputs(seed + 5000)
    cost = stage_cost(stage, alone, reference)
    shares = []
    for exit_index in range(4):
        changed = 0
        for text in range(9):
            before = int(np.argmax(reference.logits[text, exit_index]))
            changed += int(np.argmax(alone.logits[text, exit_index])) != before
        shares.append(changed / 9)
    assert cost.stage == stage
    assert cost.changed_at_full_depth == pytest.approx(shares[3])
    assert cost.changed_labels == pytest.approx(max(shares[stage - 1 :]))
    differences = [
        abs(float(alone.logits[text, 3, label]) - float(reference.logits[text, 3, label]))
        for text in range(9)
        for label in range(3)
    ]
    assert cost.mean_logit_difference == pytest.approx(sum(differences) / 27, rel=1e-5)
    assert cost.largest_logit_difference == pytest.approx(max(differences), rel=1e-6)


def test_a_stage_at_the_largest_cost_is_affordable_and_one_above_is_not() -> None:
    costs = [
        StageCost(
            stage=stage,
            changed_labels=0.5,
            changed_at_full_depth=changed,
            mean_logit_difference=0.1,
            largest_logit_difference=1.0,
        )
        for stage, changed in enumerate((0.0, 0.02, 0.021), start=1)
    ]
    assert affordable(costs, 0.02) == {1, 2}
    assert affordable(costs, 0.0) == {1}


def test_a_stage_that_computes_nonsense_costs_most_and_is_not_chosen(
    toy_bundle: Bundle, tmp_path: Path
) -> None:
    encoder = toy_bundle.text_encoder()
    encoded = [encoder.encode(TextInput(text)) for text, _ in toy_rows(100, seed=5)]
    folder = tmp_path / "draft"
    shutil.copytree(toy_bundle.path, folder)
    draft = Bundle(folder, toy_bundle.manifest, toy_bundle.identifier)
    for number, (stage, ranges) in enumerate(
        zip(draft.manifest.stages, activation_ranges(draft, encoded), strict=True), start=1
    ):
        write = write_spoiled_int8 if number == 2 else write_int8
        write(folder / stage.file, ranges, folder / int8_file(stage.file))
    costs = stage_costs(draft, encoded, outputs_of(draft, encoded))
    assert [cost.stage for cost in costs] == [1, 2, 3]
    assert max(costs, key=lambda cost: cost.changed_at_full_depth).stage == 2
    chosen = affordable(costs, 0.03)
    assert 2 not in chosen
    assert chosen

    expected = outputs_of(mixed(draft, chosen), encoded)
    keep_chosen(draft, chosen)
    assert not list(folder.glob("*.int8.onnx"))
    np.testing.assert_array_equal(outputs_of(draft, encoded).logits, expected.logits)
