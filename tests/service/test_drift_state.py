"""The drift tests on disk: what a restart remembers, and which files it refuses."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from multi_exit.drift import DriftTest
from multi_exit.errors import ConfigurationError
from service.drift_state import DriftStateFile

TEST = DriftTest(epsilon=0.01, alpha=0.01).updated(True).updated(False)


def _saved(path: Path, bundle: str = "aaaaaaaaaaaa") -> Path:
    state = DriftStateFile(path, bundle=bundle)
    state.save({"fast": TEST})
    state.close()
    return path


def test_what_was_saved_is_loaded_and_no_other_file_is_left(tmp_path: Path) -> None:
    path = _saved(tmp_path / "drift.json")
    assert DriftStateFile(path, bundle="aaaaaaaaaaaa").load() == {"fast": TEST}
    assert list(tmp_path.iterdir()) == [path]


def test_saves_stay_in_order(tmp_path: Path) -> None:
    state, test = DriftStateFile(tmp_path / "drift.json", bundle="aaaaaaaaaaaa"), TEST
    for _ in range(30):
        test = test.updated(False)
        state.save({"fast": test})
    state.close()
    assert state.load() == {"fast": test}


def test_no_file_yet_is_a_new_start(tmp_path: Path) -> None:
    assert DriftStateFile(tmp_path / "drift.json", bundle="aaaaaaaaaaaa").load() == {}


def test_another_bundle_s_state_is_passed_over_with_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _saved(tmp_path / "drift.json")
    with caplog.at_level(logging.INFO):
        assert DriftStateFile(path, bundle="bbbbbbbbbbbb").load() == {}
    assert "is of bundle aaaaaaaaaaaa, not of bbbbbbbbbbbb" in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"bundle": "aaaaaaaaaaaa", "tests": []}',
        '{"bundle": "aaaaaaaaaaaa", "tests": {"fast": {}}}',
        '{"bundle": "aaaaaaaaaaaa", "tests": {"fast": 3}}',
        json.dumps(
            {
                "bundle": "aaaaaaaaaaaa",
                "tests": {"fast": {**TEST.as_document(), "disagreements": 9}},
            }
        ),
    ],
)
def test_a_damaged_file_stops_the_start_and_says_what_to_do(tmp_path: Path, content: str) -> None:
    path = tmp_path / "drift.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"drift\.json is damaged .*remove it"):
        DriftStateFile(path, bundle="aaaaaaaaaaaa").load()


def test_half_a_file_is_damaged(tmp_path: Path) -> None:
    path = _saved(tmp_path / "drift.json")
    path.write_bytes(path.read_bytes()[:80])
    with pytest.raises(ConfigurationError, match="damaged"):
        DriftStateFile(path, bundle="aaaaaaaaaaaa").load()


def test_a_file_that_cannot_be_read_or_written_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        DriftStateFile(tmp_path, bundle="aaaaaaaaaaaa").load()
    nowhere = DriftStateFile(tmp_path / "no" / "drift.json", bundle="aaaaaaaaaaaa")
    assert nowhere.load() == {}
    with pytest.raises(ConfigurationError, match="cannot be written"):
        nowhere.check_writable({})


def test_a_disk_that_refuses_later_is_logged_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = DriftStateFile(tmp_path / "no" / "drift.json", bundle="aaaaaaaaaaaa")
    with caplog.at_level(logging.ERROR):
        state.save({"fast": TEST})
        state.close()
    assert "was not saved" in caplog.text
