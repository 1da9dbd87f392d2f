"""Exported graphs give a row the same bits in every batch: logits, entropy and hidden states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
import transformers
from numpy.typing import NDArray

from export.graphs import fuse, stage_spans, write_stage
from multi_exit.runner import open_session, share_one_thread_pool
from training.backbone import take_apart
from training.model import MultiExitModel
from training.pooling import PoolingName

_HEADS = 4


def _sessions(
    folder: Path, hidden_size: int, labels: int, pooling: PoolingName
) -> list[ort.InferenceSession]:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=500,
        hidden_size=hidden_size,
        num_hidden_layers=2,
        num_attention_heads=_HEADS,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=128,
    )
    encoder = transformers.AutoModel.from_config(config, attn_implementation="eager")
    model = MultiExitModel(take_apart(encoder), exits=(1, 2), labels=labels, pooling=pooling)
    sessions = []
    for span in stage_spans((1, 2)):
        path = folder / f"stage_{span.exit_index}.onnx"
        write_stage(model.eval(), span, last=False, path=path)
        fuse(path, heads=_HEADS, hidden_size=hidden_size)
        share_one_thread_pool(2)
        sessions.append(open_session(path, "cpu"))
    return sessions


@pytest.mark.parametrize("pooling", ["cls", "mean", "attention"])
@pytest.mark.parametrize(("hidden_size", "labels"), [(32, 2), (64, 77), (192, 150)])
def test_a_row_has_the_same_bits_alone_and_in_any_batch(
    tmp_path: Path, pooling: PoolingName, hidden_size: int, labels: int
) -> None:
    first, second = _sessions(tmp_path, hidden_size, labels, pooling)
    rng = np.random.default_rng(0)

    def run(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> list[NDArray[np.float32]]:
        types = np.zeros_like(ids)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        shallow = first.run(None, inputs)
        keep = np.arange(len(ids))
        deep = {"hidden": shallow[2], "attention_mask": mask, "keep": keep}
        return [*shallow, *second.run(None, deep)]

    for length in (3, 8, 16, 33, 96):
        rows = 33
        ids = rng.integers(10, 499, (rows, length))
        tokens = rng.integers(max(2, length - 7), length + 1, rows)
        mask = (np.arange(length)[None] < tokens[:, None]).astype(np.int64)
        alone = [run(ids[row : row + 1], mask[row : row + 1]) for row in range(rows)]
        for batch in (2, 3, 8, 17, 33):
            together = run(ids[:batch], mask[:batch])
            for name, values, position in zip(
                ("logits", "entropy", "hidden", "logits 2", "entropy 2", "hidden 2"),
                together,
                range(6),
                strict=True,
            ):
                expected = np.concatenate([alone[row][position] for row in range(batch)])
                np.testing.assert_array_equal(
                    values, expected, err_msg=f"{name}, {batch} rows of {length} tokens"
                )
