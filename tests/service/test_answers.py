"""The answer document says what its schema says, the same for one row as among many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from multi_exit.confidence import probabilities
from multi_exit.policy import Policy
from service.answers import AnswerShape, Cut, ExitPassed, RowAnswer, answer_document
from service.errors import NotFinite, StageFailed
from service.policies import ResolvedPolicy
from service.schemas import ClassifyAnswer

SHAPE = AnswerShape(labels=("a", "b", "c"), exits=(2, 4), layers=4, bundle="0123456789ab")
POLICY = ResolvedPolicy(
    policy=Policy((0.1, 0.1)), document={"kind": "threshold", "thresholds": [0.1, 0.1]}
)
WHOLE = Cut(text=False, pair=None)


def _answer(chances: list[float]) -> RowAnswer:
    logits = np.log(np.asarray(chances, dtype=np.float32))
    return RowAnswer(
        exit_index=1,
        entropy=0.25,
        probabilities=np.asarray(chances, dtype=np.float64),
        passed=(
            ExitPassed(exit_index=0, entropy=0.5, logits=logits),
            ExitPassed(exit_index=1, entropy=0.25, logits=logits),
        ),
        wait_seconds=0.5,
        compute_seconds=0.25,
    )


def test_an_answer_holds_what_was_asked_for_and_no_more() -> None:
    outcomes, cuts = [_answer([0.1, 0.7, 0.2])], [Cut(text=True, pair=False)]
    plain = answer_document(outcomes, cuts, POLICY, SHAPE, top_k=None, explain=False)
    assert plain["results"] == [
        {
            "label": "b",
            "score": 0.7,
            "exit_layer": 4,
            "entropy": 0.25,
            "truncated": True,
            "truncated_pair": False,
            "wait_seconds": 0.5,
            "compute_seconds": 0.25,
        }
    ]
    assert (plain["bundle"], plain["layers"]) == ("0123456789ab", 4)
    full = answer_document(outcomes, cuts, POLICY, SHAPE, top_k=2, explain=True)
    (result,) = full["results"]
    assert result["top_k"] == [{"label": "b", "score": 0.7}, {"label": "c", "score": 0.2}]
    assert [exit_["exit_layer"] for exit_ in result["explain"]] == [2, 4]
    for exit_ in result["explain"]:
        assert exit_["probabilities"] == pytest.approx({"a": 0.1, "b": 0.7, "c": 0.2}, abs=1e-6)
    ClassifyAnswer.model_validate(full, strict=True, extra="forbid")


def test_ties_go_to_the_label_that_comes_first_in_both_label_and_top_k() -> None:
    document = answer_document(
        [_answer([0.2, 0.4, 0.4])], [WHOLE], POLICY, SHAPE, top_k=9, explain=False
    )
    (result,) = document["results"]
    assert result["label"] == "b"
    assert [entry["label"] for entry in result["top_k"]] == ["b", "c", "a"]


def test_a_row_that_failed_has_an_error_beside_its_neighbours_answers() -> None:
    outcomes = [_answer([0.1, 0.7, 0.2]), NotFinite("not finite")]
    document = answer_document(outcomes, [WHOLE] * 2, POLICY, SHAPE, top_k=None, explain=False)
    assert document["results"][0]["label"] == "b"
    assert document["results"][1]["error"]["type"] == "urn:patamar:problem:not_finite"
    ClassifyAnswer.model_validate(document, strict=True)


def test_a_request_without_any_answer_is_an_error() -> None:
    with pytest.raises(StageFailed):
        answer_document([StageFailed("failed")], [WHOLE], POLICY, SHAPE, top_k=None, explain=False)


@given(arrays(np.float32, (7, 77), elements=st.floats(-50, 50, width=32)))
def test_probabilities_do_not_depend_on_the_rows_they_are_computed_with(
    logits: np.ndarray[tuple[int, int], np.dtype[np.float32]],
) -> None:
    together = probabilities(logits)
    for row in range(len(logits)):
        assert (probabilities(logits[row : row + 1])[0] == together[row]).all()
