"""What `multi_exit` offers by itself, and that it is light."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import multi_exit
from multi_exit import errors


def test_the_core_alone_needs_numpy_only() -> None:
    program = (
        "import sys, multi_exit\n"
        "heavy = {'onnxruntime', 'pydantic', 'tokenizers', 'torch', 'transformers'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("module", ["batch", "bundle", "offline", "outcome", "runner"])
def test_no_file_of_the_core_needs_torch(module: str) -> None:
    program = (
        f"import sys, multi_exit.{module}\n"
        "heavy = {'torch', 'transformers'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_all_lists_exactly_what_is_public() -> None:
    public = {
        name
        for name, value in vars(multi_exit).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert sorted(public) == multi_exit.__all__


def test_every_error_is_in_the_tree_that_its_file_draws() -> None:
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    assert all(issubclass(kind, errors.PatamarError) for kind in kinds)
    assert errors.__doc__ is not None
    assert all(kind.__name__ in errors.__doc__ for kind in kinds)
