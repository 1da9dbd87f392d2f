"""A sequence classifier behind LitServe, batched as its documentation shows.

Run by the peer's own Python: `litserve_app.py MODEL_FOLDER PORT THREADS`.
"""

from __future__ import annotations

import sys
from typing import Any

import litserve  # type: ignore[import-not-found]
import torch
from transformers import pipeline


class Classifier(litserve.LitAPI):  # type: ignore[misc]
    """Reads {"inputs": text}, answers {"label", "score"}."""

    def setup(self, device: str) -> None:
        torch.set_num_threads(int(sys.argv[3]))
        self._classify = pipeline("text-classification", model=sys.argv[1], device="cpu")

    def decode_request(self, request: dict[str, str]) -> str:
        return request["inputs"]

    def predict(self, texts: list[str]) -> Any:
        with torch.inference_mode():
            return self._classify(texts, truncation=True, batch_size=len(texts))

    def encode_response(self, output: dict[str, Any]) -> dict[str, Any]:
        return output


if __name__ == "__main__":
    server = litserve.LitServer(
        Classifier(max_batch_size=32, batch_timeout=0.002), accelerator="cpu", workers_per_device=1
    )
    server.run(
        host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", generate_client_file=False
    )
