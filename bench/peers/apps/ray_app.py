"""A sequence classifier behind Ray Serve with its dynamic batching.

Run by the peer's own Python: `ray_app.py MODEL_FOLDER PORT THREADS`.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

import ray  # type: ignore[import-not-found]
import torch
from ray import serve
from starlette.requests import Request
from transformers import pipeline


@serve.deployment(max_ongoing_requests=1024)
class Classifier:
    """Reads {"inputs": text}, answers {"label", "score"}; GET /ready answers too."""

    def __init__(self, model: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self._classify = pipeline("text-classification", model=model, device="cpu")

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.002)  # type: ignore[untyped-decorator]
    async def answer(self, texts: list[str]) -> list[dict[str, Any]]:
        with torch.inference_mode():
            answers: list[dict[str, Any]] = self._classify(
                texts, truncation=True, batch_size=len(texts)
            )
        return answers

    async def __call__(self, request: Request) -> Any:
        if request.method == "GET":
            return {"status": "ready"}
        return await self.answer((await request.json())["inputs"])


if __name__ == "__main__":
    model, port, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ray.init(num_cpus=threads, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        serve.run(Classifier.bind(model, threads), route_prefix="/")  # type: ignore[attr-defined]
        signal.pause()
    finally:
        serve.shutdown()
        ray.shutdown()
