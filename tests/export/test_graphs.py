"""Exported graphs: names, free axes, no weight twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from export.graphs import stage_spans, write_merge
from multi_exit.bundle import Bundle
from multi_exit.runner import open_session, share_one_thread_pool

# MPNet's table of relative positions (32 x 12) is the one tensor allowed in several graphs.
_LARGEST_SHARED_TENSOR = 4096


@given(st.sets(st.integers(1, 24), min_size=1))
def test_stages_cover_every_layer_once_in_order(exits: set[int]) -> None:
    spans = stage_spans(sorted(exits))
    covered = [layer for span in spans for layer in range(span.first_layer, span.exit_layer + 1)]
    assert covered == list(range(1, max(exits) + 1))
    assert [span.exit_layer for span in spans] == sorted(exits)


def test_graphs_have_the_names_and_free_axes_that_the_runner_needs(toy_bundle: Bundle) -> None:
    stages = toy_bundle.manifest.stages
    for number, stage in enumerate(stages, start=1):
        graph = onnx.load(toy_bundle.path / stage.file).graph
        inputs = [value.name for value in graph.input]
        outputs = [value.name for value in graph.output]
        first = number == 1
        expected = list(toy_bundle.manifest.model_inputs)
        assert inputs == (expected if first else ["hidden", "attention_mask", "keep"])
        hidden = [] if number == len(stages) else ["hidden_out"]
        assert outputs == ["logits", "entropy", *hidden]
        for value in graph.input:
            axes = value.type.tensor_type.shape.dim
            assert all(axis.dim_param for axis in list(axes)[:2]), value.name


def test_no_weight_is_in_two_graphs(toy_bundle: Bundle) -> None:
    seen: dict[bytes, str] = {}
    for stage in toy_bundle.manifest.stages:
        for tensor in onnx.load(toy_bundle.path / stage.file).graph.initializer:
            values = numpy_helper.to_array(tensor)
            constant = values.size == 0 or (values == values.flat[0]).all()
            if values.size <= 64 or constant:
                continue
            key = values.tobytes()
            assert key not in seen, f"{tensor.name} of {stage.file} is also in {seen[key]}"
            seen[key] = stage.file


def test_all_weights_of_the_model_are_somewhere(toy_bundle: Bundle, toy_checkpoint: Path) -> None:
    from training.checkpoint import load_checkpoint

    total = sum(
        numpy_helper.to_array(tensor).size
        for stage in toy_bundle.manifest.stages
        for tensor in onnx.load(toy_bundle.path / stage.file).graph.initializer
    )
    parameters = sum(p.numel() for p in load_checkpoint(toy_checkpoint).model.parameters())
    # Graphs hold a few constants more, and no parameter less.
    assert parameters <= total <= parameters + _LARGEST_SHARED_TENSOR


@pytest.mark.parametrize(("first_rows", "second_rows"), [(1, 1), (3, 2), (0, 4)])
def test_merge_joins_rows_in_order(tmp_path: Path, first_rows: int, second_rows: int) -> None:
    write_merge(8, tmp_path / "merge.onnx")
    share_one_thread_pool(1)
    session = open_session(tmp_path / "merge.onnx", "cpu")
    rng = np.random.default_rng(0)
    first = rng.normal(size=(first_rows, 5, 8)).astype(np.float32)
    second = rng.normal(size=(second_rows, 5, 8)).astype(np.float32)
    (merged,) = session.run(None, {"first": first, "second": second})
    np.testing.assert_array_equal(merged, np.concatenate([first, second]))
