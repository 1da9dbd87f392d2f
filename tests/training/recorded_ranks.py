"""Trains several configurations as one of several ranks, and records every step: run by torchrun.

Arguments: a folder with NAME.json (configurations) and, for each, a line in `plan.json`: how many
steps to take before a Ctrl-C, and then go on. Writes NAME.rankN.json beside it.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import training.train
from training.config import TrainingConfig
from training.model import MultiExitModel
from training.objective import ObjectiveValue
from training.parallel import joined_ranks


@contextmanager
def recorded(steps: list[dict[str, Any]], *, interrupt_after: int | None = None) -> Iterator[None]:
    """Notes loss, decisions and gradient of every step; Ctrl-C after `interrupt_after` steps."""
    real, real_clip = training.train.differentiate, training.train.clip_gradients

    def differentiate(value: ObjectiveValue, *others: Any) -> None:
        if interrupt_after is not None and len(steps) >= interrupt_after:
            raise KeyboardInterrupt
        steps.append(
            {
                "loss": float(value.total.detach()),
                "contrastive": value.gate.contrastive.tolist(),
                "teacher": value.gate.teacher.tolist(),
                "seed": torch.initial_seed(),
            }
        )
        real(value, *others)

    def clip_gradients(model: MultiExitModel, largest_norm: float) -> float:
        steps[-1]["gradient_norm"] = norm = real_clip(model, largest_norm)
        return norm

    training.train.differentiate, training.train.clip_gradients = differentiate, clip_gradients
    try:
        yield
    finally:
        training.train.differentiate, training.train.clip_gradients = real, real_clip


def main(folder: Path) -> None:
    plan: dict[str, int | None] = json.loads((folder / "plan.json").read_text())
    with joined_ranks("cpu") as ranks:
        for name, interrupt_after in plan.items():
            config = TrainingConfig.model_validate_json((folder / f"{name}.json").read_text())
            steps: list[dict[str, Any]] = []
            if interrupt_after is not None:
                try:
                    with recorded(steps, interrupt_after=interrupt_after):
                        training.train.train(config, folder / name, ranks)
                except KeyboardInterrupt:
                    steps = []
            with recorded(steps):
                training.train.train(config, folder / name, ranks)
            (folder / f"{name}.rank{ranks.rank}.json").write_text(json.dumps(steps))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
