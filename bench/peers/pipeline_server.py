"""The plainest peer: a transformers text-classification pipeline behind FastAPI.

What most teams write first, at its usual good settings: one process, inference in the thread
pool, torch on all cores, no gradient. Run by `bench.peers.comparison` in a process of its own:
`python -m bench.peers.pipeline_server MODEL_FOLDER PORT THREADS`.
"""

from __future__ import annotations

import sys

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline


class Question(BaseModel):
    """Body of a request, the same as ours."""

    inputs: str | list[str]


def create_peer(model_folder: str, threads: int) -> FastAPI:
    """An application with one route, POST /classify, over a full-depth model."""
    torch.set_num_threads(threads)
    classify = pipeline("text-classification", model=model_folder, device="cpu")
    app = FastAPI()

    @app.get("/readyz")
    def ready() -> dict[str, str]:
        return {"status": "ready"}

    @app.post("/classify")
    def answer(question: Question) -> dict[str, object]:
        with torch.inference_mode():
            return {"results": classify(question.inputs, truncation=True)}

    return app


if __name__ == "__main__":
    uvicorn.run(
        create_peer(sys.argv[1], int(sys.argv[3])),
        host="127.0.0.1",
        port=int(sys.argv[2]),
        log_level="warning",
        access_log=False,
    )
