"""Which device and which number format a run uses."""

from __future__ import annotations

import torch

from multi_exit.errors import ConfigurationError

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(wanted: str) -> torch.device:
    """Raises ConfigurationError where a GPU was asked for and there is none."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError("run.device is 'cuda', but torch sees no GPU; use 'auto' or 'cpu'")
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(wanted)


def choose_precision(wanted: str, device: torch.device) -> str:
    """auto: bf16 where the processor computes in it, else fp32 (elsewhere bf16 is slower)."""
    if wanted != "auto":
        return wanted
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return "bf16" if torch.cpu._is_avx512_bf16_supported() else "fp32"


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Mixed precision for the forward pass; losses are computed outside it, in fp32."""
    enabled = precision in _DTYPES
    return torch.autocast(device.type, dtype=_DTYPES.get(precision), enabled=enabled)
