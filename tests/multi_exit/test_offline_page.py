"""The lines of docs/offline.md run as they stand, with numpy alone, and print what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "offline.md"


def _lines() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(block)


def test_there_are_ten_of_them() -> None:
    assert len([line for line in _lines().splitlines() if line.strip()]) == 10


@pytest.mark.parametrize("texts", [299, 298])
def test_they_certify_one_percent_from_299_texts_and_need_numpy_alone(
    tmp_path: Path, texts: int
) -> None:
    rng = np.random.default_rng(0)
    sure = np.sort(rng.uniform(1, 6, (texts, 3, 1)), axis=1)
    np.save(
        tmp_path / "logits.npy", np.eye(4, dtype=np.float32)[rng.integers(0, 4, (texts, 1))] * sure
    )
    heavy = {"onnxruntime", "pydantic", "tokenizers", "torch", "transformers"}
    program = f"{_lines()}\nimport sys\nassert not {heavy} & sys.modules.keys()\n"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if texts == 299:
        assert "At most 1% of texts like the 299 calibration texts" in done.stdout, done.stderr
    else:
        # No threshold is safe: the place is None, as the page says.
        assert "NoneType" in done.stderr
