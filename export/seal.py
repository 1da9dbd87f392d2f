"""Writes a bundle so that it is there whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from multi_exit.bundle import MANIFEST_FILE, BundleManifest, file_digest
from multi_exit.errors import ConfigurationError


@contextmanager
def sealed_folder(target: Path) -> Iterator[Path]:
    """A new folder beside `target` that takes its place when the block ends without an error.

    Whatever ends the block early (Ctrl-C too) leaves what was at `target` as it was. Raises
    ConfigurationError where `target` exists and is no bundle: nothing of a user's is replaced.
    """
    if target.exists() and not (target / MANIFEST_FILE).exists() and any(target.iterdir()):
        raise ConfigurationError(
            f"{target} exists and is not a bundle; choose another folder or empty it"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield scratch
        # mkdtemp makes folders for the owner alone; a server often runs as another user.
        scratch.chmod(0o755)
        _replace(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_manifest(folder: Path, make: Callable[[dict[str, str]], BundleManifest]) -> None:
    """Digests the files of `folder` and writes the manifest that `make` builds from them."""
    files = {path.name: file_digest(path) for path in sorted(folder.iterdir())}
    manifest = make(files)
    (folder / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _replace(scratch: Path, target: Path) -> None:
    if not target.exists():
        scratch.rename(target)
        return
    previous = target.with_name(f".{target.name}-previous")
    shutil.rmtree(previous, ignore_errors=True)
    target.rename(previous)
    try:
        scratch.rename(target)
    except BaseException:
        previous.rename(target)
        raise
    shutil.rmtree(previous, ignore_errors=True)
