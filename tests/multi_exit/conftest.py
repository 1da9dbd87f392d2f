"""A tiny sealed bundle of real ONNX graphs, and the same computation written in numpy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from multi_exit.batch import TokenBatch
from multi_exit.bundle import Bundle, load_bundle
from multi_exit.offline import every_exit
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import TextInput

HIDDEN, EXITS, LABELS, BUCKETS = 8, (1, 3, 4), ("no", "perhaps", "yes"), (4, 6, 12)
WORDS = tuple(f"w{number}" for number in range(30))
# The embedding of this word is NaN.
BROKEN = "broken"
_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, BROKEN)
_FLOAT, _INT = TensorProto.FLOAT, TensorProto.INT64

Slow = Callable[[TokenBatch], list[NDArray[np.float64]]]


@pytest.fixture(scope="session")
def stage_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Three stages over token ids and types, with two golden examples and a pair."""
    folder = tmp_path_factory.mktemp("stage-bundle")
    _tokenizer().save(str(folder / "tokenizer.json"))
    stages = []
    for index, weights in enumerate(_weights()):
        stages.append(f"stage_{index + 1:02}.onnx")
        onnx.save(_stage(index, weights), folder / stages[-1])
    onnx.save(_merge(), folder / "merge.onnx")
    manifest = _manifest(folder, stages)
    _seal(folder, manifest)
    _seal(folder, {**manifest, "golden": _golden(load_bundle(folder))})
    return load_bundle(folder)


@pytest.fixture(scope="session")
def stage_runner(stage_bundle: Bundle) -> StageRunner:
    return StageRunner(stage_bundle, provider="cpu", threads=1)


@pytest.fixture(scope="session")
def slow_logits() -> Slow:
    """Logits of every exit, [rows, K] each, by loops over rows that never see each other."""
    return _slow_logits


def _weights() -> list[dict[str, NDArray[np.float32]]]:
    rng = np.random.default_rng(3)
    drawn = []
    for _ in EXITS:
        shapes = {"mix": (HIDDEN, HIDDEN), "classifier": (HIDDEN, len(LABELS))}
        drawn.append({k: rng.normal(size=s).astype(np.float32) for k, s in shapes.items()})
    drawn[0]["words"] = rng.normal(size=(len(_TOKENS), HIDDEN)).astype(np.float32)
    drawn[0]["words"][_TOKENS.index(BROKEN)] = np.nan
    drawn[0]["types"] = rng.normal(size=(2, HIDDEN)).astype(np.float32)
    return drawn


def _slow_logits(tokens: TokenBatch) -> list[NDArray[np.float64]]:
    answers: list[list[Any]] = [[] for _ in EXITS]
    for ids, mask, types in zip(
        tokens.input_ids, tokens.attention_mask, tokens.token_type_ids, strict=True
    ):
        for index, weights in enumerate(_weights()):
            if index == 0:
                hidden = weights["words"][ids].astype(float) + weights["types"][types]
            hidden = np.tanh(hidden @ weights["mix"].astype(float))
            answers[index].append(mask @ hidden @ weights["classifier"].astype(float))
    return [np.array(rows) for rows in answers]


def _stage(index: int, weights: dict[str, NDArray[np.float32]]) -> onnx.ModelProto:
    nodes: list[onnx.NodeProto] = []
    last = index == len(EXITS) - 1

    def node(operator: str, inputs: str, output: str, **attributes: Any) -> None:
        nodes.append(helper.make_node(operator, inputs.split(), [output], **attributes))

    if index == 0:
        names = ("input_ids", "attention_mask", "token_type_ids")
        inputs: dict[str, Any] = {name: (_INT, ["rows", "length"]) for name in names}
        node("Gather", "words input_ids", "word_vectors")
        node("Gather", "types token_type_ids", "type_vectors")
        node("Add", "word_vectors type_vectors", "kept")
    else:
        inputs = {
            "hidden": (_FLOAT, ["before", "length", HIDDEN]),
            "attention_mask": (_INT, ["rows", "length"]),
            "keep": (_INT, ["rows"]),
        }
        node("Gather", "hidden keep", "kept", axis=0)
    node("MatMul", "kept mix", "mixed")
    hidden_out = "hidden_last" if last else "hidden_out"
    node("Tanh", "mixed", hidden_out)
    node("Cast", "attention_mask", "mask", to=_FLOAT)
    node("Unsqueeze", "mask one", "mask_row")
    node("MatMul", f"mask_row {hidden_out}", "pooled")
    node("MatMul", "pooled classifier", "logits_row")
    node("Squeeze", "logits_row one", "logits")
    node("LogSoftmax", "logits", "log_p", axis=-1)
    node("Exp", "log_p", "p")
    node("Unsqueeze", "p one", "p_row")
    node("Unsqueeze", "log_p last_axis", "log_p_column")
    node("MatMul", "p_row log_p_column", "negative")
    node("Mul", "negative scale", "scaled")
    node("Squeeze", "scaled both", "entropy")
    outputs: dict[str, Any] = {"logits": (_FLOAT, ["rows", len(LABELS)])}
    outputs["entropy"] = (_FLOAT, ["rows"])
    if not last:
        outputs["hidden_out"] = (_FLOAT, ["rows", "length", HIDDEN])
    constants = {
        "one": np.array([1], np.int64),
        "last_axis": np.array([2], np.int64),
        "both": np.array([1, 2], np.int64),
        "scale": np.array(-1 / np.log(len(LABELS)), np.float32),
    }
    return _model(nodes, {**weights, **constants}, inputs, outputs)


def _merge() -> onnx.ModelProto:
    node = helper.make_node("Concat", ["first", "second"], ["merged"], axis=0)
    inputs = {name: (_FLOAT, [name, "length", HIDDEN]) for name in ("first", "second")}
    return _model([node], {}, inputs, {"merged": (_FLOAT, ["rows", "length", HIDDEN])})


def _model(nodes: Any, weights: Any, inputs: Any, outputs: Any) -> onnx.ModelProto:
    infos = [
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in side.items()]
        for side in (inputs, outputs)
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "tiny", *infos, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def _tokenizer() -> Tokenizer:
    vocabulary = {token: number for number, token in enumerate(_TOKENS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def _manifest(folder: Path, stages: list[str]) -> dict[str, Any]:
    firsts = (1, *(layer + 1 for layer in EXITS[:-1]))
    point = {
        "name": "fast",
        "thresholds": [0.5, 0.4, 0.0],
        "average_layers": 2.0,
        "speedup": 2.0,
        "samples": 100,
        "agreement": 0.99,
        "accuracy": None,
        "full_depth_accuracy": None,
    }
    return {
        "format_version": 1,
        "name": "stages",
        "labels": LABELS,
        "layers": EXITS[-1],
        "exits": EXITS,
        "hidden_size": HIDDEN,
        "max_length": BUCKETS[-1],
        "length_buckets": BUCKETS,
        "pad_token_id": 0,
        "unicode_form": "NFC",
        "takes_pairs": True,
        "precision": "fp32",
        "model_inputs": ["input_ids", "attention_mask", "token_type_ids"],
        "tokenizer_file": "tokenizer.json",
        "merge_file": "merge.onnx",
        "stages": [
            {"file": file, "first_layer": first, "exit_layer": last}
            for file, first, last in zip(stages, firsts, EXITS, strict=True)
        ],
        "operating_points": [point],
        "default_point": "fast",
        "golden": [],
        "golden_tolerance": 1e-3,
        "provenance": {
            "created": "2026-01-01T00:00:00Z",
            "checkpoint_sha256": "0" * 64,
            "training_configuration": {},
            "data_sha256": {},
            "library_versions": {},
            "calibration": {},
        },
        "files": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.iterdir())
        },
    }


def _seal(folder: Path, manifest: dict[str, Any]) -> None:
    (folder / "bundle.json").write_text(json.dumps(manifest), encoding="utf-8")


def _golden(bundle: Bundle) -> list[dict[str, Any]]:
    runner = StageRunner(bundle, provider="cpu", threads=1)
    encoder = bundle.text_encoder()
    texts = [TextInput("w1"), TextInput("w2 w3 w4", "w5 w6")]
    outputs = every_exit(runner, bundle.manifest, [encoder.encode(text) for text in texts])
    return [
        {
            "text": text.text,
            "text_pair": text.text_pair,
            "labels": [LABELS[label] for label in outputs.labels[row]],
            "entropies": outputs.entropy[row].tolist(),
            "logits": outputs.logits[row].tolist(),
        }
        for row, text in enumerate(texts)
    ]
