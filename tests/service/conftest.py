"""A tiny bundle of real ONNX graphs, and the service that serves it on a real port."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
import uvicorn
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from multi_exit.bundle import (
    Bundle,
    BundleManifest,
    GoldenExample,
    OperatingPoint,
    Provenance,
    StageEntry,
    load_bundle,
)
from multi_exit.certificate import Certificate
from multi_exit.offline import every_exit
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import TextInput
from service.app import create_app
from service.served import Served
from service.settings import Settings

HIDDEN = 16
EXITS = (1, 2, 4)
LABELS = ("left", "right", "straight")
BUCKETS = (4, 8, 16, 32)
WORDS = tuple(f"w{number}" for number in range(60))
# "broken" has an embedding of NaN; "explode" has none, so the first stage raises.
BROKEN, EXPLODE = "broken", "explode"
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")

MakeBundle = Callable[..., Bundle]
Serve = Callable[..., AbstractContextManager["Running"]]


@dataclass(frozen=True, slots=True)
class Running:
    """A served application: its address, and its parts to look at."""

    url: str
    served: Served
    server: uvicorn.Server

    def post(self, **body: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/classify", json=body, timeout=30)

    def metric(self, name: str, **labels: str) -> float:
        value = self.served.metrics.registry.get_sample_value(name, labels)
        return 0.0 if value is None else value


def write_bundle(
    folder: Path,
    *,
    spin: int = 0,
    golden: bool = True,
    shift: float = 0.0,
    points: tuple[OperatingPoint, ...] = (),
    default_point: str | None = None,
) -> Bundle:
    """spin: useless loop turns of stage 2, to make it slow. shift: spoils the golden logits.

    points: besides `fast`, which is not certified.
    """
    folder.mkdir()
    _write_tokenizer(folder / "tokenizer.json")
    rng = np.random.default_rng(7)
    names = []
    for index, layer in enumerate(EXITS):
        names.append(f"stage_{index + 1:02}.onnx")
        last = layer == EXITS[-1]
        graph = _stage(rng, first=index == 0, last=last, spin=spin if index == 1 else 0)
        onnx.save(graph, folder / names[-1])
    onnx.save(_merge(), folder / "merge.onnx")
    manifest = _manifest(folder, names, ())
    points = (*manifest.operating_points, *points)
    manifest = manifest.model_copy(
        update={"operating_points": points, "default_point": default_point}
    )
    _seal(folder, manifest)
    if golden:
        examples = _golden(load_bundle(folder), shift)
        _seal(folder, manifest.model_copy(update={"golden": examples}))
    return load_bundle(folder)


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return write_bundle(tmp_path_factory.mktemp("bundles") / "tiny")


@pytest.fixture(scope="session")
def slow_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Its second stage takes some tenths of a second, whatever it runs."""
    return write_bundle(tmp_path_factory.mktemp("bundles") / "slow", spin=300_000, golden=False)


@pytest.fixture(scope="session")
def make_bundle(tmp_path_factory: pytest.TempPathFactory) -> MakeBundle:
    def make(**options: Any) -> Bundle:
        return write_bundle(tmp_path_factory.mktemp("bundles") / "made", **options)

    return make


def certified_point(
    name: str, thresholds: tuple[float, ...], speedup: float, **promised: float
) -> OperatingPoint:
    """An operating point with a certificate of each kind that is named, at its epsilon."""
    certificates = tuple(
        Certificate(
            kind=kind,  # type: ignore[arg-type]
            epsilon=epsilon,
            delta=0.05,
            samples=1000,
            errors=1,
            p_value=0.01,
            upper_bound=epsilon,
            statement="…",
        )
        for kind, epsilon in promised.items()
    )
    return OperatingPoint(
        name=name,
        thresholds=thresholds,
        average_layers=EXITS[-1] / speedup,
        speedup=speedup,
        samples=1000,
        agreement=1 - speedup / 100,
        accuracy=None,
        full_depth_accuracy=None,
        certificates=certificates,
    )


@pytest.fixture(scope="session")
def serve() -> Serve:
    """Serves a bundle under given settings, until the block ends."""
    return _serving


@pytest.fixture(scope="session")
def tiny(tiny_bundle: Bundle) -> Iterator[Running]:
    """The tiny bundle served with small limits; shared, so look at differences of metrics."""
    limits = {"max_body_bytes": 200_000, "max_texts": 200, "max_top_k": 5}
    with _serving(tiny_bundle, **limits) as running:
        yield running


@pytest.fixture(scope="session")
def eventually() -> Callable[..., None]:
    return _eventually


def _eventually(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    """Waits for something that happens soon on another thread; fails where it does not."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def _serving(bundle: Bundle, *, ready: bool = True, **settings: Any) -> Iterator[Running]:
    app = create_app(Settings(bundle=bundle.path, threads=1, **settings))
    config = uvicorn.Config(app, http="httptools", loop="uvloop", ws="none", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        running = Running(url, app.state.served, server)
        try:
            _eventually(lambda: server.started)
            if ready:
                _eventually(lambda: running.served.readiness.ready)
            yield running
        finally:
            server.should_exit = True
            thread.join(timeout=30)
            assert not thread.is_alive(), "the server did not stop"


def _stage(rng: np.random.Generator, *, first: bool, last: bool, spin: int) -> onnx.ModelProto:
    """tanh(hidden W + mean(hidden) U), then logits of the mean, as `export/graphs.py` has them.

    Means are matrix products: ONNX's sums take another order for one row than for several.
    """
    float_, int_ = TensorProto.FLOAT, TensorProto.INT64
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, Any] = {
        "W": rng.normal(size=(HIDDEN, HIDDEN)).astype(np.float32) * 0.6,
        "U": rng.normal(size=(HIDDEN, HIDDEN)).astype(np.float32) * 0.6,
        "V": rng.normal(size=(HIDDEN, len(LABELS))).astype(np.float32) * 5,
        "one": np.array([1], np.int64),
        "last_axis": np.array([2], np.int64),
        "scale": np.array(-1 / np.log(len(LABELS)), np.float32),
        "zero": np.array(0, np.float32),
        "unit": np.array(1, np.float32),
    }

    def node(operator: str, inputs: str, output: str, **attributes: Any) -> None:
        nodes.append(helper.make_node(operator, inputs.split(), [output], **attributes))

    inputs = {"attention_mask": (int_, ["rows", "length"])}
    if first:
        inputs["input_ids"] = (int_, ["rows", "length"])
        table = rng.normal(size=(len(_vocabulary()) - 1, HIDDEN)).astype(np.float32)
        table[_vocabulary()[BROKEN]] = np.nan
        weights["table"] = table
        node("Gather", "table input_ids", "kept")
    else:
        inputs = {"hidden": (float_, ["before", "length", HIDDEN]), **inputs}
        inputs["keep"] = (int_, ["rows"])
        node("Gather", "hidden keep", "kept", axis=0)
    node("Cast", "attention_mask", "mask", to=float_)
    node("Unsqueeze", "mask one", "mask_row")  # [rows, 1, length]
    node("ReduceSum", "mask_row last_axis", "tokens", keepdims=1)  # [rows, 1, 1]
    node("MatMul", "mask_row kept", "sum_before")
    node("Div", "sum_before tokens", "mean_before")
    node("MatMul", "kept W", "own")
    node("MatMul", "mean_before U", "context")
    node("Add", "own context", "mixed")
    hidden_out = "hidden_last" if last else "hidden_out"
    node("Tanh", "mixed", hidden_out)
    node("MatMul", f"mask_row {hidden_out}", "sum_after")
    node("Div", "sum_after tokens", "mean_after")
    node("MatMul", "mean_after V", "logits_row")
    node("Squeeze", "logits_row one", "logits_plain")
    _spin(nodes, weights, spin)
    node("Add", "logits_plain idle", "logits")
    node("LogSoftmax", "logits", "log_p", axis=-1)
    node("Exp", "log_p", "p")
    node("Mul", "p log_p", "terms")
    node("ReduceSum", "terms one", "negative", keepdims=0)
    node("Mul", "negative scale", "raw_entropy")
    node("Clip", "raw_entropy zero unit", "entropy")
    outputs = {"logits": ["rows", len(LABELS)], "entropy": ["rows"]}
    if not last:
        outputs["hidden_out"] = ["rows", "length", HIDDEN]
    return _model(nodes, weights, inputs, {name: (float_, s) for name, s in outputs.items()})


def _spin(nodes: list[onnx.NodeProto], weights: dict[str, Any], turns: int) -> None:
    """A loop that adds nothing, `turns` times: 0 turns give 0 at once."""
    boolean, float_ = TensorProto.BOOL, TensorProto.FLOAT
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Add", ["held", "held"], ["holds"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", boolean, []),
            helper.make_tensor_value_info("held", float_, []),
        ],
        [
            helper.make_tensor_value_info("go_on", boolean, []),
            helper.make_tensor_value_info("holds", float_, []),
        ],
    )
    weights |= {"turns": np.array(turns, np.int64), "yes": np.array(True)}
    nodes.append(helper.make_node("Loop", ["turns", "yes", "zero"], ["idle"], body=body))


def _merge() -> onnx.ModelProto:
    node = helper.make_node("Concat", ["first", "second"], ["merged"], axis=0)
    float_ = TensorProto.FLOAT
    inputs = {name: (float_, [name, "length", HIDDEN]) for name in ("first", "second")}
    return _model([node], {}, inputs, {"merged": (float_, ["rows", "length", HIDDEN])})


def _model(nodes: Any, weights: Any, inputs: Any, outputs: Any) -> onnx.ModelProto:
    infos = [
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in side.items()]
        for side in (inputs, outputs)
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "tiny", *infos, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    return model


def _vocabulary() -> dict[str, int]:
    return {word: number for number, word in enumerate((*_SPECIAL, *WORDS, BROKEN, EXPLODE))}


def _write_tokenizer(path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel(_vocabulary(), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(path))


def _manifest(folder: Path, stages: list[str], golden: tuple[GoldenExample, ...]) -> BundleManifest:
    files = sorted(path.name for path in folder.iterdir() if path.name != "bundle.json")
    firsts = (1, *(layer + 1 for layer in EXITS[:-1]))
    point = OperatingPoint(
        name="fast",
        thresholds=(0.5, 0.4, 0.0),
        average_layers=2.0,
        speedup=2.0,
        samples=100,
        agreement=0.99,
        accuracy=0.9,
        full_depth_accuracy=0.91,
    )
    return BundleManifest(
        name="tiny",
        labels=LABELS,
        layers=EXITS[-1],
        exits=EXITS,
        hidden_size=HIDDEN,
        max_length=BUCKETS[-1],
        length_buckets=BUCKETS,
        pad_token_id=0,
        unicode_form="NFC",
        takes_pairs=True,
        precision="fp32",
        model_inputs=("input_ids", "attention_mask"),
        tokenizer_file="tokenizer.json",
        merge_file="merge.onnx",
        stages=tuple(
            StageEntry(file=name, first_layer=first, exit_layer=last)
            for name, first, last in zip(stages, firsts, EXITS, strict=True)
        ),
        operating_points=(point,),
        golden=golden,
        golden_tolerance=1e-4,
        provenance=Provenance(
            created="2026-01-01T00:00:00Z",
            checkpoint_sha256="0" * 64,
            training_configuration={},
            data_sha256={},
            library_versions={},
            calibration={},
        ),
        files={name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files},
    )


def _seal(folder: Path, manifest: BundleManifest) -> None:
    (folder / "bundle.json").write_text(manifest.model_dump_json(), encoding="utf-8")


def _golden(bundle: Bundle, shift: float) -> tuple[GoldenExample, ...]:
    runner = StageRunner(bundle, provider="cpu", threads=1)
    texts = [TextInput("w1"), TextInput("w2 w3 w4", "w5 w6"), TextInput(" ".join(WORDS))]
    encoder = bundle.text_encoder()
    outputs = every_exit(runner, bundle.manifest, [encoder.encode(text) for text in texts])
    return tuple(
        GoldenExample(
            text=text.text,
            text_pair=text.text_pair,
            labels=tuple(LABELS[label] for label in outputs.labels[row]),
            entropies=tuple(outputs.entropy[row].tolist()),
            logits=tuple(map(tuple, (outputs.logits[row] + shift).tolist())),
        )
        for row, text in enumerate(texts)
    )
