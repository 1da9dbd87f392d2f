"""The process: it starts, says why it does not, and leaves when told to, with nothing lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from multi_exit.bundle import Bundle

ROOT = Path(__file__).parents[2]


def _command(bundle: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "cli.main", "serve", str(bundle), "--port", "0", *options]


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PATAMAR_THREADS": "1", **more}


@contextmanager
def _process(
    bundle: Bundle, log: Path, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A served bundle in a process of its own, once it is ready, and its address."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            _command(bundle.path), cwd=ROOT, env=_environment(**environment), stderr=output
        ) as process,
    ):
        try:
            deadline = time.monotonic() + 60
            while not (found := re.search(r"listening on (\S+)", log.read_text())):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            url = found.group(1)
            while httpx.get(f"{url}/readyz").status_code != 200:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield url, process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_when_told_to_leave_it_answers_what_it_accepted_and_returns_0(
    slow_bundle: Bundle, tmp_path: Path, number: signal.Signals
) -> None:
    with _process(slow_bundle, tmp_path / "log") as (url, process):
        answers: list[httpx.Response] = []
        body = {"inputs": ["w1 w2 w3 w4 w5", "w6"]}
        asking = [
            threading.Thread(
                target=lambda: answers.append(httpx.post(f"{url}/classify", json=body, timeout=30))
            )
            for _ in range(4)
        ]
        for thread in asking:
            thread.start()
        deadline = time.monotonic() + 10
        while "patamar_requests_received_total 4.0" not in httpx.get(f"{url}/metrics").text:
            assert time.monotonic() < deadline
        process.send_signal(number)
        _until_refused(url)
        for thread in asking:
            thread.join()
        assert [answer.status_code for answer in answers] == [200] * 4
        assert all(len(answer.json()["results"]) == 2 for answer in answers)
        assert process.wait(timeout=20) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


def _until_refused(url: str) -> None:
    """New connections are refused soon; until then they are served."""
    deadline = time.monotonic() + 2
    while True:
        try:
            assert httpx.get(f"{url}/healthz").status_code == 200
        except httpx.TransportError:
            return
        assert time.monotonic() < deadline, "it still takes connections"


def _refusal(*command: str, **environment: str) -> str:
    result = subprocess.run(
        command,
        cwd=ROOT,
        env=_environment(**environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


def test_a_provider_that_is_not_to_be_had_is_a_refusal_in_one_sentence(
    tiny_bundle: Bundle,
) -> None:
    runner: Any = pytest.importorskip("multi_exit.runner")
    if "cuda" in runner.available_providers():
        pytest.skip("this machine has CUDA")
    refusal = _refusal(*_command(tiny_bundle.path, "--provider", "cuda"))
    assert refusal.splitlines()[-1].startswith("patamar serve: provider 'cuda' was asked for, but")


def test_wrong_settings_are_refusals_in_one_sentence(tiny_bundle: Bundle) -> None:
    command = _command(tiny_bundle.path)
    assert "PATAMAR_MAX_TEXT;" in _refusal(*command, PATAMAR_MAX_TEXT="3")
    assert "WEB_CONCURRENCY=3 asks for several processes" in _refusal(*command, WEB_CONCURRENCY="3")
    assert "cannot listen on 192.0.2.1" in _refusal(*command, "--host", "192.0.2.1")
    assert "not a bundle" in _refusal(*_command(Path("/nonexistent")))
