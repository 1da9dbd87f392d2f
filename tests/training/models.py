"""Small models and runs that several test files use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from training.backbone import load_backbone
from training.config import TrainingConfig
from training.model import MultiExitModel
from training.pooling import PoolingName


def small_model(
    folder: Path, *, exits: Sequence[int] = (1, 2, 3), pooling: PoolingName = "mean"
) -> MultiExitModel:
    """A model with fresh exits for 3 labels, in evaluation mode."""
    torch.manual_seed(0)
    return MultiExitModel(load_backbone(str(folder)), exits=exits, labels=3, pooling=pooling).eval()


def small_config(train: Path, backbone: Path, **sections: dict[str, Any]) -> TrainingConfig:
    """A run of a second or so; sections update the defaults."""
    defaults: dict[str, dict[str, Any]] = {
        "data": {"train": train, "validation": 0.2, "calibration": 0.1},
        "model": {"backbone": str(backbone), "max_length": 32},
        "objective": {"method": "acl-cl"},
        "optimiser": {"backbone_learning_rate": 1e-3, "exit_learning_rate": 1e-3},
        "run": {
            "epochs": 2,
            "batch_size": 8,
            "precision": "fp32",
            "threads": 1,
            "checkpoint_steps": 3,
        },
    }
    merged = {
        name: {**defaults.get(name, {}), **sections.get(name, {})}
        for name in defaults.keys() | sections.keys()
    }
    return TrainingConfig.model_validate(merged)


def random_tokens(
    rows: int, length: int, *, vocabulary: int, pad: int, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Token tensors whose rows get shorter one by one, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(pad + 4, vocabulary, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(1, rows):
        short = max(1, length - 2 * row)
        ids[row, short:] = pad
        mask[row, short:] = 0
    return {"input_ids": ids, "attention_mask": mask}
