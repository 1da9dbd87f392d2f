"""Where a backbone's files are: a hub name, a local folder, or a folder inside a Python package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tokenizers import Tokenizer
from transformers import AutoTokenizer
from transformers.utils.hub import cached_file

from multi_exit.bundle import file_digest
from multi_exit.errors import ConfigurationError
from training.config import ModelConfig

_PACKAGE_PREFIX = "package:"


def resolve_backbone(config: ModelConfig) -> str:
    """A folder or hub name that transformers loads.

    `package:IMPORT_NAME/FOLDER` is found without running the package's code. Raises
    ConfigurationError for a package that is not installed, or weights of another SHA-256.
    """
    source = config.backbone
    if source.startswith(_PACKAGE_PREFIX):
        source = str(_package_folder(source.removeprefix(_PACKAGE_PREFIX)))
    if config.backbone_sha256 is not None:
        _check_weights(source, config.backbone_sha256)
    return source


def load_tokenizer(source: str) -> Tokenizer:
    """The backbone's tokenizer as a `tokenizers` object. Raises ConfigurationError.

    transformers is used only to find or convert it; it is never asked to encode.
    """
    try:
        wrapped = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigurationError(f"cannot load the tokenizer of {source!r}: {error}") from error
    tokenizer = getattr(wrapped, "backend_tokenizer", None)
    if not isinstance(tokenizer, Tokenizer):
        raise ConfigurationError(
            f"the tokenizer of {source!r} exists in Python only; use a backbone with a fast one"
        )
    # Without its files transformers makes up a tokenizer that knows the control tokens alone.
    if set(tokenizer.get_vocab()) <= set(wrapped.all_special_tokens):
        raise ConfigurationError(
            f"{source!r} has no tokenizer; put tokenizer.json beside config.json"
        )
    return tokenizer


def _package_folder(location: str) -> Path:
    name, _, folder = location.partition("/")
    # find_spec would import the parent of a dotted name.
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            f"the backbone is in the Python package {name!r}, which is not installed"
        )
    found = Path(next(iter(spec.submodule_search_locations))) / folder
    if not found.is_dir():
        raise ConfigurationError(f"the Python package {name!r} has no folder {folder!r}")
    return found


def _check_weights(source: str, wanted: str) -> None:
    try:
        weights = cached_file(source, "model.safetensors")
        if weights is None:
            raise FileNotFoundError("not found")
        found = file_digest(Path(weights))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"backbone_sha256 is given, but {source} has no model.safetensors: {error}"
        ) from error
    if found != wanted:
        raise ConfigurationError(
            f"{weights} has SHA-256 {found[:12]}…, the configuration wants {wanted[:12]}…: it is "
            "another model; correct backbone or backbone_sha256"
        )
