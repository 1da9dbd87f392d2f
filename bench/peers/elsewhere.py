"""Peers that come as images only, and that somebody else has started: how each is asked.

Text Embeddings Inference: `python -m bench.peers.model CHECKPOINT FOLDER` writes the model;

    docker run --rm -p 8080:80 -v FOLDER:/model TEI_IMAGE --model-id /model
    patamar bench peers … --running tei=http://127.0.0.1:8080

Triton Inference Server: `python -m bench.peers.triton BUNDLE FOLDER` writes its model repository;

    docker run --rm -p 8000:8000 -v FOLDER:/models TRITON_IMAGE \\
        tritonserver --model-repository /models
    patamar bench peers … --running triton=http://127.0.0.1:8000

Give their containers the processors that ours has (`--cpus`).
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence

from bench.peers import triton
from bench.peers.contender import Contender
from multi_exit.bundle import Bundle
from multi_exit.errors import ConfigurationError


def contender_elsewhere(name_and_url: str, bundle: Bundle) -> Contender:
    """From "tei=http://…" or "triton=http://…". Raises ConfigurationError for anything else."""
    name, _, url = name_and_url.partition("=")
    url = url.rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"{name_and_url!r} is not like tei=http://127.0.0.1:8080")
    if name == "tei":
        return Contender(name="Text Embeddings Inference", url=f"{url}/predict", body=_inputs)
    if name == "triton":
        return Contender(
            name="Triton, ONNX Runtime", url=f"{url}{triton.PATH}", body=triton.body_of(bundle)
        )
    raise ConfigurationError(f"no running peer is called {name!r}; there are tei, triton")


def check_answers(contender: Contender, texts: Sequence[str]) -> None:
    """Asks the first text. Raises ConfigurationError where it is not answered with 200."""
    request = urllib.request.Request(
        contender.url,
        data=contender.body(texts[0]),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=60):
            return
    except OSError as error:
        raise ConfigurationError(
            f"{contender.name} at {contender.url} does not answer: {error}"
        ) from error


def _inputs(text: str) -> bytes:
    return json.dumps({"inputs": text}).encode()
