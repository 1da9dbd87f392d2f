"""The shadow log: its format, its bound, and what it does when the disk refuses."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest

from multi_exit.errors import ConfigurationError
from service.shadow_log import ShadowLog
from service.shadow_sample import ShadowRow

ROW = ShadowRow(entropies=(0.75, float(np.float32(0.1)), 0.0), labels=(1, 0, 0))


def _log(path: Path, max_bytes: int = 100_000) -> ShadowLog:
    return ShadowLog(path, bundle="0123456789ab", share=0.01, max_bytes=max_bytes)


def test_a_line_holds_bundle_entropies_labels_and_share_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "shadow.jsonl"
    log = _log(path)
    log.write(ROW)
    log.write(ROW)
    first, second = path.read_text(encoding="utf-8").splitlines()
    assert first == second
    assert json.loads(first) == {
        "bundle": "0123456789ab",
        "entropies": list(ROW.entropies),
        "labels": [1, 0, 0],
        "sampled": 0.01,
    }
    assert np.float32(json.loads(first)["entropies"][1]) == np.float32(0.1)


def test_both_files_together_stay_within_the_bound_and_keep_the_newest(tmp_path: Path) -> None:
    path, bound = tmp_path / "shadow.jsonl", 2_000
    log = _log(path, bound)
    for number in range(200):
        log.write(ShadowRow(entropies=(0.5,), labels=(number,)))
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= bound
    assert {file.name for file in tmp_path.iterdir()} == {"shadow.jsonl", "shadow.jsonl.1"}
    lines = [
        line
        for name in ("shadow.jsonl.1", "shadow.jsonl")
        for line in (tmp_path / name).read_text(encoding="utf-8").splitlines()
    ]
    kept = [json.loads(line)["labels"][0] for line in lines]
    assert len(kept) > 10
    assert kept == list(range(200 - len(kept), 200))


def test_a_restart_appends_and_drops_what_a_crash_left_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "shadow.jsonl"
    _log(path).write(ROW)
    with path.open("ab") as file:
        file.write(b'{"bundle": "0123')
    _log(path).write(ROW)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["labels"] for line in lines] == [[1, 0, 0]] * 2


def test_a_path_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"shadow_log .*no/such.*folder that exists"):
        _log(tmp_path / "no" / "such")


def test_a_disk_that_refuses_ends_the_log_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log = _log(folder / "shadow.jsonl")
    (folder / "shadow.jsonl").unlink()
    folder.rmdir()
    with caplog.at_level(logging.ERROR):
        log.write(ROW)
        log.write(ROW)
    assert len(caplog.records) == 1
    assert "ends here" in caplog.text
