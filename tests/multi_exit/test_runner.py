"""The stage runner on real graphs: rows kept, merged, alone or together; golden examples."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from multi_exit.batch import bucket_of, pad_batch
from multi_exit.bundle import Bundle, load_bundle
from multi_exit.errors import BundleError, ProviderUnavailable
from multi_exit.offline import check_golden, classify_texts, every_exit
from multi_exit.policy import Policy
from multi_exit.runner import StageRunner, available_providers
from multi_exit.text_encoder import EncodedText, TextInput

TEXTS = ("rain wind", "drum and guitar", "some bread", "the sky song", "tea with cake and rain")
LENGTH = 12


@pytest.fixture(scope="module")
def runner(toy_bundle: Bundle) -> StageRunner:
    return StageRunner(toy_bundle, provider="cpu", threads=2)


@pytest.fixture(scope="module")
def encoded(toy_bundle: Bundle) -> list[EncodedText]:
    encoder = toy_bundle.text_encoder()
    return [encoder.encode(TextInput(text)) for text in TEXTS]


def _tokens(encoded: list[EncodedText], bundle: Bundle):  # type: ignore[no-untyped-def]
    return pad_batch(encoded, LENGTH, bundle.manifest.pad_token_id)


def test_keep_drops_and_reorders_rows_to_the_bit(
    runner: StageRunner, encoded: list[EncodedText], toy_bundle: Bundle
) -> None:
    first = runner.start(_tokens(encoded, toy_bundle))
    assert first.state is not None
    assert (first.state.rows, first.state.length) == (len(TEXTS), LENGTH)
    everything = runner.advance(2, first.state, np.arange(len(TEXTS)))
    for keep in ([0], [4, 1], [2, 2, 0], [3, 2, 1, 0]):
        some = runner.advance(2, first.state, np.array(keep))
        np.testing.assert_array_equal(some.logits, everything.logits[keep])
        np.testing.assert_array_equal(some.entropy, everything.entropy[keep])
        assert some.state is not None
        assert everything.state is not None
        deep = runner.advance(3, some.state, np.arange(len(keep)))
        whole = runner.advance(3, everything.state, np.array(keep))
        np.testing.assert_array_equal(deep.logits, whole.logits)
        assert deep.state is None


def test_merged_groups_go_on_as_if_they_had_started_together(
    runner: StageRunner, encoded: list[EncodedText], toy_bundle: Bundle
) -> None:
    together = runner.start(_tokens(encoded, toy_bundle)).state
    parts = [runner.start(_tokens([text], toy_bundle)).state for text in encoded]
    assert together is not None
    merged = runner.merge([part for part in parts if part is not None])
    keep = np.arange(len(TEXTS))
    np.testing.assert_array_equal(
        runner.advance(2, merged, keep).logits, runner.advance(2, together, keep).logits
    )


def test_states_of_different_lengths_or_none_are_not_merged(
    runner: StageRunner, encoded: list[EncodedText], toy_bundle: Bundle
) -> None:
    pad = toy_bundle.manifest.pad_token_id
    states = [runner.start(pad_batch(encoded[:1], n, pad)).state for n in (LENGTH, LENGTH + 4)]
    for wrong in ([], states):
        with pytest.raises(ValueError, match="one length"):
            runner.merge(wrong)  # type: ignore[arg-type]


def test_offline_answers_equal_what_every_exit_says_under_the_policy(
    runner: StageRunner, encoded: list[EncodedText], toy_bundle: Bundle
) -> None:
    manifest = toy_bundle.manifest
    outputs = every_exit(runner, manifest, encoded * 20)
    for threshold in (0.0, 0.05, 0.3, 1.0):
        policy = Policy.constant(threshold, len(manifest.exits))
        answers = classify_texts(runner, manifest, encoded * 20, policy, batch_rows=7)
        taken = outputs.exits_taken(policy)
        for row, answer in enumerate(answers):
            assert answer.exit_layer == manifest.exits[taken[row]]
            assert answer.label == manifest.labels[outputs.labels[row, taken[row]]]
            assert answer.entropy == outputs.entropy[row, taken[row]]


def test_golden_examples_pass_and_any_change_is_found(
    runner: StageRunner, toy_bundle: Bundle
) -> None:
    encoder = toy_bundle.text_encoder()
    check_golden(runner, toy_bundle, encoder)
    golden = toy_bundle.manifest.golden
    lengths = [len(encoder.encode(example.text_input)) for example in golden]
    assert max(lengths) == toy_bundle.manifest.max_length
    assert bucket_of(min(lengths), toy_bundle.manifest.length_buckets) <= 4
    shifted = tuple(tuple(v + 0.01 for v in row) for row in golden[0].logits)
    broken = tuple(tuple(float("nan") for _ in row) for row in golden[0].logits)
    for change in ({"logits": shifted}, {"logits": broken}, {"labels": ("x", "y", "z")}):
        changed = (golden[0].model_copy(update=change), *golden[1:])
        manifest = toy_bundle.manifest.model_copy(update={"golden": changed})
        with pytest.raises(BundleError, match="golden example 0"):
            check_golden(runner, Bundle(toy_bundle.path, manifest, "x"), encoder)


@pytest.mark.skipif("cuda" in available_providers(), reason="this machine has CUDA")
def test_cuda_that_is_not_to_be_had_is_refused(toy_bundle: Bundle) -> None:
    with pytest.raises(ProviderUnavailable, match="'cuda' was asked for"):
        StageRunner(toy_bundle, provider="cuda", threads=1)


@pytest.mark.gpu
@pytest.mark.skipif("cuda" not in available_providers(), reason="needs an NVIDIA GPU")
def test_a_gpu_answers_as_the_cpu_does(
    toy_bundle: Bundle, runner: StageRunner, encoded: list[EncodedText]
) -> None:
    device = StageRunner(toy_bundle, provider="cuda", threads=1)
    assert device.provider == "cuda"
    on_gpu = every_exit(device, toy_bundle.manifest, encoded)
    on_cpu = every_exit(runner, toy_bundle.manifest, encoded)
    np.testing.assert_allclose(on_gpu.logits, on_cpu.logits, atol=1e-3)


def test_a_graph_that_cannot_be_read_is_a_bundle_error(toy_bundle: Bundle, tmp_path: Path) -> None:
    shutil.copytree(toy_bundle.path, tmp_path / "bundle")
    (tmp_path / "bundle" / "stage_02.onnx").write_bytes(b"not a graph")
    with pytest.raises(BundleError):
        load_bundle(tmp_path / "bundle")
    with pytest.raises(BundleError, match=r"stage_02\.onnx"):
        StageRunner(
            Bundle(tmp_path / "bundle", toy_bundle.manifest, "x"), provider="cpu", threads=1
        )


def test_provider_auto_takes_what_there_is(runner: StageRunner) -> None:
    assert runner.provider in available_providers()
    assert "CPUExecutionProvider" in ort.get_available_providers()


def test_rows_go_on_in_the_company_and_order_that_keep_says(
    stage_runner: StageRunner, stage_bundle: Bundle
) -> None:
    encoder = stage_bundle.text_encoder()
    texts = [encoder.encode(TextInput(text)) for text in ("w1", "w2 w3", "w4", "broken", "w5 w6")]
    state = stage_runner.start(pad_batch(texts, 4, 0)).state
    assert state is not None
    # As a view with a stride: what the graph is fed has to be the rows all the same.
    some = stage_runner.advance(2, state, np.array([4, 9, 0, 9, 2, 9])[::2])
    for row, name in enumerate(("w5 w6", "w1", "w4")):
        alone = stage_runner.start(pad_batch([encoder.encode(TextInput(name))], 4, 0)).state
        assert alone is not None
        deeper = stage_runner.advance(2, alone, np.arange(1))
        np.testing.assert_array_equal(some.logits[row], deeper.logits[0])
    assert np.isfinite(some.logits).all()


def test_merging_one_state_gives_it_back(stage_runner: StageRunner, stage_bundle: Bundle) -> None:
    text = stage_bundle.text_encoder().encode(TextInput("w1"))
    state = stage_runner.start(pad_batch([text], 4, 0)).state
    assert state is not None
    assert stage_runner.merge([state]) is state


@pytest.mark.parametrize("file", ["stage_01.onnx", "stage_03.onnx", "merge.onnx"])
@pytest.mark.parametrize("content", [b"", b"not a graph"])
def test_each_graph_that_cannot_be_read_is_named(
    stage_bundle: Bundle, tmp_path: Path, file: str, content: bytes
) -> None:
    shutil.copytree(stage_bundle.path, tmp_path / "bundle")
    (tmp_path / "bundle" / file).write_bytes(content)
    damaged = Bundle(tmp_path / "bundle", stage_bundle.manifest, "x")
    with pytest.raises(BundleError, match=file):
        StageRunner(damaged, provider="cpu", threads=1)
