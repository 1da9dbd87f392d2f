"""Our model for Triton Inference Server: a model repository, and the body that asks it.

`python -m bench.peers.triton BUNDLE FOLDER` writes the repository; bench/peers/elsewhere.py tells
what then. Triton takes tokens: texts are encoded beforehand, and it is spared that.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.serving.static_bundle import write_static_bundle
from multi_exit.batch import bucket_of, pad_batch
from multi_exit.bundle import Bundle, BundleManifest, load_bundle
from multi_exit.text_encoder import TextInput

MODEL = "classifier"
PATH = f"/v2/models/{MODEL}/infer"


def write_model_repository(bundle: Bundle, folder: Path) -> None:
    """The full-depth graph with dynamic batching, as Triton wants it laid out."""
    version = folder / MODEL / "1"
    version.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        static = write_static_bundle(bundle, Path(temporary) / "static")
        shutil.copyfile(static.path / static.manifest.stages[0].file, version / "model.onnx")
    (folder / MODEL / "config.pbtxt").write_text(model_configuration(bundle.manifest))


def model_configuration(manifest: BundleManifest) -> str:
    """config.pbtxt: batches up to 32 of equal padded length, waiting at most 2 ms for more."""
    inputs = ",\n".join(
        f'  {{ name: "{name}" data_type: TYPE_INT64 dims: [ -1 ] }}'
        for name in manifest.model_inputs
    )
    return (
        f'name: "{MODEL}"\nbackend: "onnxruntime"\nmax_batch_size: 32\n'
        f"input [\n{inputs}\n]\n"
        "output [\n"
        f'  {{ name: "logits" data_type: TYPE_FP32 dims: [ {len(manifest.labels)} ] }}\n]\n'
        "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
        "dynamic_batching { max_queue_delay_microseconds: 2000 }\n"
    )


def body_of(bundle: Bundle) -> Callable[[str], bytes]:
    """Makes the JSON body that asks for one text, padded to its bucket so that batches form."""
    encoder, manifest = bundle.text_encoder(), bundle.manifest

    def body(text: str) -> bytes:
        encoded = encoder.encode(TextInput(text))
        length = bucket_of(len(encoded), manifest.length_buckets)
        tokens = pad_batch([encoded], length, manifest.pad_token_id)
        inputs = [
            {
                "name": name,
                "shape": [1, length],
                "datatype": "INT64",
                "data": getattr(tokens, name)[0].tolist(),
            }
            for name in manifest.model_inputs
        ]
        return json.dumps({"inputs": inputs, "outputs": [{"name": "logits"}]}).encode()

    return body


if __name__ == "__main__":
    write_model_repository(load_bundle(Path(sys.argv[1])), Path(sys.argv[2]))
