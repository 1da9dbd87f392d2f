"""A sequence classifier behind BentoML with its adaptive batching.

Run by the peer's own Python: `bentoml_app.py MODEL_FOLDER PORT THREADS`. The service reads the
folder and the threads from the environment, since BentoML's workers import it anew.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import bentoml  # type: ignore[import-not-found]


@bentoml.service(workers=1, traffic={"timeout": 60, "max_concurrency": 1024})
class Classifier:
    """Reads {"inputs": [text]}, answers [{"label", "score"}]."""

    def __init__(self) -> None:
        import torch
        from transformers import pipeline

        torch.set_num_threads(int(os.environ["PEER_THREADS"]))
        self._torch = torch
        self._classify = pipeline(
            "text-classification", model=os.environ["PEER_MODEL"], device="cpu"
        )

    @bentoml.api(batchable=True, max_batch_size=32, max_latency_ms=60_000)  # type: ignore[untyped-decorator]
    def classify(self, inputs: list[str]) -> list[dict[str, Any]]:
        with self._torch.inference_mode():
            answers: list[dict[str, Any]] = self._classify(
                inputs, truncation=True, batch_size=len(inputs)
            )
        return answers


if __name__ == "__main__":
    os.environ["PEER_MODEL"], os.environ["PEER_THREADS"] = sys.argv[1], sys.argv[3]
    os.environ["BENTOML_DO_NOT_TRACK"] = "True"
    os.chdir(Path(__file__).parent)
    program = str(Path(sys.executable).with_name("bentoml"))
    command = [program, "serve", "bentoml_app:Classifier", "--host", "127.0.0.1"]
    os.execv(program, [*command, "--port", sys.argv[2]])
