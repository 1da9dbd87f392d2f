"""Whole sets of texts through every exit: against numpy, in any company, with broken rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from multi_exit.batch import TokenBatch, bucket_of, pad_batch
from multi_exit.bundle import Bundle
from multi_exit.confidence import normalised_entropy
from multi_exit.errors import BundleError
from multi_exit.offline import check_golden, classify_texts, every_exit
from multi_exit.policy import Policy
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import EncodedText, TextInput

WORD = st.integers(0, 29).map(lambda number: f"w{number}")
TEXT = st.lists(WORD, min_size=1, max_size=14).map(" ".join)
INPUT = st.builds(TextInput, TEXT, st.none() | TEXT)

Slow = Callable[[TokenBatch], list[NDArray[np.float64]]]


def _encode(bundle: Bundle, texts: list[TextInput]) -> list[EncodedText]:
    encoder = bundle.text_encoder()
    return [encoder.encode(text) for text in texts]


@given(texts=st.lists(INPUT, min_size=1, max_size=12), batch_rows=st.integers(1, 5))
def test_every_exit_equals_the_same_computation_in_numpy(
    stage_bundle: Bundle,
    stage_runner: StageRunner,
    slow_logits: Slow,
    texts: list[TextInput],
    batch_rows: int,
) -> None:
    manifest = stage_bundle.manifest
    encoded = _encode(stage_bundle, texts)
    outputs = every_exit(stage_runner, manifest, encoded, batch_rows=batch_rows)
    for row, text in enumerate(encoded):
        tokens = pad_batch([text], bucket_of(len(text), manifest.length_buckets), 0)
        for index, expected in enumerate(slow_logits(tokens)):
            np.testing.assert_allclose(outputs.logits[row, index], expected[0], atol=1e-4)
            entropy = normalised_entropy(expected)[0]
            assert outputs.entropy[row, index] == pytest.approx(entropy, abs=1e-4)


@given(texts=st.lists(INPUT, min_size=2, max_size=12))
def test_a_text_gets_the_same_bits_alone_and_in_company(
    stage_bundle: Bundle, stage_runner: StageRunner, texts: list[TextInput]
) -> None:
    encoded = _encode(stage_bundle, texts)
    together = every_exit(stage_runner, stage_bundle.manifest, encoded)
    for row, text in enumerate(encoded):
        alone = every_exit(stage_runner, stage_bundle.manifest, [text])
        np.testing.assert_array_equal(together.logits[row], alone.logits[0])
        np.testing.assert_array_equal(together.entropy[row], alone.entropy[0])


@given(
    texts=st.lists(INPUT, min_size=1, max_size=12),
    thresholds=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    last_exit=st.integers(0, 2),
)
def test_texts_are_answered_at_the_exit_their_policy_takes_in_their_order(
    stage_bundle: Bundle,
    stage_runner: StageRunner,
    texts: list[TextInput],
    thresholds: list[float],
    last_exit: int,
) -> None:
    manifest, policy = stage_bundle.manifest, Policy(tuple(thresholds), last_exit)
    encoded = _encode(stage_bundle, texts)
    finished: list[int] = []
    answers = classify_texts(
        stage_runner, manifest, encoded, policy, batch_rows=3, advanced=finished.append
    )
    outputs = every_exit(stage_runner, manifest, encoded)
    assert sum(finished) == len(answers) == len(texts)
    for row, answer in enumerate(answers):
        taken = policy.exit_index(outputs.entropy[row].tolist())
        logits = outputs.logits[row, taken].astype(float)
        assert answer.exit_layer == manifest.exits[taken]
        assert answer.label == manifest.labels[int(logits.argmax())]
        assert answer.score == pytest.approx(1 / np.exp(logits - logits.max()).sum())
        assert answer.truncated == (encoded[row].truncated or encoded[row].truncated_pair)


def test_a_broken_row_is_nan_at_every_exit_and_its_neighbours_are_not(
    stage_bundle: Bundle, stage_runner: StageRunner
) -> None:
    texts = [TextInput("w1 w2"), TextInput("w1 broken"), TextInput("w3 w4")]
    outputs = every_exit(stage_runner, stage_bundle.manifest, _encode(stage_bundle, texts))
    assert np.isnan(outputs.logits[1]).all()
    assert np.isnan(outputs.entropy[1]).all()
    assert np.isfinite(outputs.logits[[0, 2]]).all()
    assert outputs.exits_taken(Policy.constant(1.0, 3))[1] == 2


def test_classifying_a_broken_row_is_refused(
    stage_bundle: Bundle, stage_runner: StageRunner
) -> None:
    encoded = _encode(stage_bundle, [TextInput("w1 broken")])
    with pytest.raises(ValueError, match="finite"):
        classify_texts(stage_runner, stage_bundle.manifest, encoded, Policy.constant(0.5, 3))


def test_no_texts_give_no_answers(stage_bundle: Bundle, stage_runner: StageRunner) -> None:
    manifest = stage_bundle.manifest
    assert every_exit(stage_runner, manifest, []).logits.shape == (0, 3, 3)
    assert classify_texts(stage_runner, manifest, [], Policy.constant(0.5, 3)) == []


def _spoilt(bundle: Bundle, row: int, **changes: Any) -> Bundle:
    golden = list(bundle.manifest.golden)
    golden[row] = golden[row].model_copy(update=changes)
    manifest = bundle.manifest.model_copy(update={"golden": tuple(golden)})
    return Bundle(bundle.path, manifest, "spoilt")


def test_golden_examples_hold_within_their_tolerance(
    stage_bundle: Bundle, stage_runner: StageRunner
) -> None:
    encoder = stage_bundle.text_encoder()
    check_golden(stage_runner, stage_bundle, encoder)
    logits = stage_bundle.manifest.golden[1].logits
    near = tuple(tuple(value + 5e-4 for value in row) for row in logits)
    check_golden(stage_runner, _spoilt(stage_bundle, 1, logits=near), encoder)


@pytest.mark.parametrize("exit_index", [0, 1, 2])
@pytest.mark.parametrize("change", [2e-3, -2e-3, float("nan")])
@pytest.mark.parametrize("field", ["logits", "entropies"])
def test_one_changed_number_of_a_golden_example_is_found(
    stage_bundle: Bundle, stage_runner: StageRunner, exit_index: int, change: float, field: str
) -> None:
    example = stage_bundle.manifest.golden[1]
    spoilt = np.array(getattr(example, field))
    # An entropy may move twice as far as a logit.
    spoilt[exit_index] += change * (2 if field == "entropies" else 1)
    encoder = stage_bundle.text_encoder()
    with pytest.raises(BundleError, match="golden example 1"):
        check_golden(stage_runner, _spoilt(stage_bundle, 1, **{field: spoilt.tolist()}), encoder)


@pytest.mark.parametrize("changes", [{"labels": ("no",) * 3}, {"text": "w9"}, {"text_pair": None}])
def test_a_golden_example_of_another_label_or_text_is_found(
    stage_bundle: Bundle, stage_runner: StageRunner, changes: dict[str, Any]
) -> None:
    encoder = stage_bundle.text_encoder()
    assert stage_bundle.manifest.golden[1].labels != ("no",) * 3
    with pytest.raises(BundleError, match="golden example 1"):
        check_golden(stage_runner, _spoilt(stage_bundle, 1, **changes), encoder)


def test_a_golden_text_whose_graph_gives_nan_is_found(
    stage_bundle: Bundle, stage_runner: StageRunner
) -> None:
    spoilt = _spoilt(stage_bundle, 0, text="broken", labels=("no",) * 3)
    with pytest.raises(BundleError, match="golden example 0"):
        check_golden(stage_runner, spoilt, stage_bundle.text_encoder())
