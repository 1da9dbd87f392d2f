"""Devices and number formats."""

from __future__ import annotations

import pytest
import torch

from multi_exit.errors import ConfigurationError
from training.precision import autocast, choose_device, choose_precision


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="torch sees no GPU"):
        choose_device("cuda")
    assert choose_device("auto").type == "cpu"


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)],
)
def test_layers_compute_in_the_precision_asked_for(precision: str, dtype: torch.dtype) -> None:
    device = torch.device("cpu")
    assert choose_precision(precision, device) == precision
    with autocast(device, precision):
        assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).dtype == dtype


def test_auto_is_a_precision_that_exists() -> None:
    assert choose_precision("auto", torch.device("cpu")) in ("fp32", "bf16")
