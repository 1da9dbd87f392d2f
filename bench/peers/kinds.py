"""The peers: what each needs, how it is started, and how it is asked.

Each serves the same full-depth model folder on the same number of threads, at its own usual good
settings. All but the pipeline live in environments of their own (bench/peers/environment.py): they
pin other versions than ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from multi_exit.errors import ConfigurationError

_APPS = Path(__file__).with_name("apps")
_TORCH = ("torch==2.13.0", "transformers==5.24.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerKind:
    """One kind of server.

    requirements: pinned, for its own environment; empty for what runs in ours. command: of the
    environment's folder of programs, the model's folder, port and threads. path: asked by POST
    with the body that `body` makes of a text.
    """

    name: str
    title: str
    requirements: tuple[str, ...]
    command: Callable[[Path, Path, int, int], list[str]]
    ready_path: str
    path: str
    body: Callable[[str], bytes]


def peer_kind(name: str) -> PeerKind:
    """Raises ConfigurationError for a name that is none."""
    if name not in PEERS:
        raise ConfigurationError(f"no peer {name!r}; there are {', '.join(PEERS)}")
    return PEERS[name]


def _pipeline(programs: Path, model: Path, port: int, threads: int) -> list[str]:
    python = str(programs / "python")
    return [python, "-m", "bench.peers.pipeline_server", str(model), str(port), str(threads)]


def _app(file: str) -> Callable[[Path, Path, int, int], list[str]]:
    def command(programs: Path, model: Path, port: int, threads: int) -> list[str]:
        python = str(programs / "python")
        return [python, str(_APPS / file), str(model), str(port), str(threads)]

    return command


def _infinity(programs: Path, model: Path, port: int, threads: int) -> list[str]:
    # The number of threads is torch's own setting: OMP_NUM_THREADS, which every peer is given.
    command = [str(programs / "infinity_emb"), "v2", "--model-id", str(model)]
    command += ["--served-model-name", "peer", "--engine", "torch", "--device", "cpu"]
    return [*command, "--dtype", "float32", "--port", str(port), "--no-model-warmup"]


def _inputs(text: str) -> bytes:
    return json.dumps({"inputs": text}).encode()


def _infinity_body(text: str) -> bytes:
    return json.dumps({"model": "peer", "input": [text]}).encode()


def _bentoml_body(text: str) -> bytes:
    # What BentoML may join with other requests must be a list.
    return json.dumps({"inputs": [text]}).encode()


PIPELINE = PeerKind(
    name="pipeline",
    title="transformers pipeline",
    requirements=(),
    command=_pipeline,
    ready_path="/readyz",
    path="/classify",
    body=_inputs,
)
PEERS = {
    kind.name: kind
    for kind in (
        PIPELINE,
        PeerKind(
            name="litserve",
            title="LitServe, torch",
            requirements=("litserve==0.2.19", *_TORCH),
            command=_app("litserve_app.py"),
            ready_path="/health",
            path="/predict",
            body=_inputs,
        ),
        PeerKind(
            name="infinity",
            title="infinity, torch",
            requirements=("infinity-emb[server,torch]==0.0.78", "torch==2.13.0"),
            command=_infinity,
            ready_path="/health",
            path="/classify",
            body=_infinity_body,
        ),
        PeerKind(
            name="bentoml",
            title="BentoML, torch",
            requirements=("bentoml==1.4.40", *_TORCH),
            command=_app("bentoml_app.py"),
            ready_path="/readyz",
            path="/classify",
            body=_bentoml_body,
        ),
        PeerKind(
            name="ray",
            title="Ray Serve, torch",
            requirements=("ray[serve]==2.60.0", *_TORCH),
            command=_app("ray_app.py"),
            ready_path="/ready",
            path="/",
            body=_inputs,
        ),
    )
}

OWN_PROGRAMS = Path(sys.executable).parent
