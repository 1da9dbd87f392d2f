"""Sealing: whole or not at all, and never over something that is not a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from export.seal import sealed_folder
from multi_exit.errors import ConfigurationError


def _interrupted(target: Path, interruption: type[BaseException]) -> None:
    with sealed_folder(target) as folder:
        _write(folder, "half")
        raise interruption


def _write(folder: Path, text: str) -> None:
    (folder / "bundle.json").write_text(text)


def test_a_folder_takes_its_place_when_the_block_ends(tmp_path: Path) -> None:
    with sealed_folder(tmp_path / "bundle") as folder:
        _write(folder, "new")
        assert not (tmp_path / "bundle").exists()
    assert (tmp_path / "bundle" / "bundle.json").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_an_interruption_leaves_the_old_bundle_and_nothing_else(
    tmp_path: Path, interruption: type[BaseException]
) -> None:
    with sealed_folder(tmp_path / "bundle") as folder:
        _write(folder, "old")
    with pytest.raises(interruption):
        _interrupted(tmp_path / "bundle", interruption)
    assert (tmp_path / "bundle" / "bundle.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_new_bundle_replaces_an_old_one(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with sealed_folder(tmp_path / "bundle") as folder:
            _write(folder, text)
    assert (tmp_path / "bundle" / "bundle.json").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_folder_that_is_no_bundle_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with (
        pytest.raises(ConfigurationError, match="not a bundle"),
        sealed_folder(tmp_path / "thesis"),
    ):
        pass
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"
