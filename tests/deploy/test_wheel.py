"""The Dockerfile's steps by hand: wheel from the copied sources alone, clean environment, no torch.

Needs a package registry. The last test serves the bundle that compose would: BUNDLE_PATH, or else
the quickstart's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from multi_exit.bundle import Bundle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NOBODY = 65534


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as the Dockerfile does: from what its first stage copies, and nothing else."""
    sources = tmp_path_factory.mktemp("sources")
    first_stage = (root / "Dockerfile").read_text("utf-8").split("AS install-cpu")[0]
    for names in re.findall(r"^COPY (.+) \S+$", first_stage, re.M):
        for name in names.split():
            if (root / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "results")
                shutil.copytree(root / name, sources / name, ignore=ignored)
            else:
                shutil.copy(root / name, sources / name)
    target = tmp_path_factory.mktemp("wheels")
    _pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", target, ".", cwd=sources)
    (built,) = target.glob("patamar-*.whl")
    return built


@pytest.fixture(scope="module")
def interpreter() -> Path:
    """A Python that a user without rights can start; one in root's home is not."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (Path(sys.executable).resolve(), Path("/usr/bin") / version):
        try:
            if _as_nobody([candidate, "-c", "import venv, ensurepip"]).returncode == 0:
                return candidate
        except (PermissionError, FileNotFoundError):
            continue
    pytest.skip(f"no {version} with venv that an ordinary user can start")


@pytest.fixture(scope="module")
def python(wheel: Path, root: Path, interpreter: Path) -> Iterator[Path]:
    """Python of a clean environment that holds what the CPU image holds."""
    # Not below pytest's own folder: that one is closed to other users.
    with tempfile.TemporaryDirectory(prefix="patamar-wheel-") as folder:
        Path(folder).chmod(0o755)
        subprocess.run([interpreter, "-m", "venv", f"{folder}/venv"], check=True)
        clean = Path(folder) / "venv" / "bin" / "python"
        pinned = root / "deploy" / "docker" / "requirements-cpu.txt"
        _pip(clean, "install", "--requirement", pinned)
        _pip(clean, "install", "--no-index", "--find-links", wheel.parent, "patamar[serve]")
        _pip(clean, "check")
        yield clean


def test_licence_texts_travel_with_the_wheel(wheel: Path) -> None:
    listing = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", wheel], check=True, capture_output=True, text=True
    ).stdout
    assert re.search(r"dist-info/licenses/LICENSE\b", listing)
    assert re.search(r"dist-info/licenses/NOTICE\b", listing)
    assert "tests/" not in listing


def test_serving_needs_neither_torch_nor_transformers(python: Path) -> None:
    program = (
        "import importlib.util as u, service.app, sys\n"
        "absent = [n for n in ('torch', 'transformers', 'datasets', 'onnx') if u.find_spec(n)]\n"
        "assert not absent, absent\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    result = _as_nobody([python, "-c", program])
    assert result.returncode == 0, result.stderr


def test_the_command_explains_itself_to_an_ordinary_user(python: Path) -> None:
    for arguments in (["--help"], ["serve", "--help"]):
        result = _as_nobody([python.parent / "patamar", *arguments])
        assert result.returncode == 0, result.stderr
        assert "usage: patamar" in result.stdout


def test_a_missing_bundle_is_one_sentence_and_not_a_trace(python: Path) -> None:
    result = _as_nobody([python.parent / "patamar", "serve", "/nonexistent/bundle"])
    assert result.returncode not in (0, None)
    assert "/nonexistent/bundle" in result.stderr
    assert "Traceback" not in result.stderr


def test_training_says_which_extra_is_missing(python: Path) -> None:
    result = _as_nobody(
        [python.parent / "patamar", "train", "/nonexistent.toml", "--output", "/nonexistent"]
    )
    assert "patamar[train]" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_the_installed_service_answers_and_leaves_on_sigterm(
    python: Path, toy_bundle: Bundle
) -> None:
    bundle = Path(os.environ.get("BUNDLE_PATH", toy_bundle.path))
    with _served(python, bundle) as (address, process):
        health = _health_check_of_the_image().replace("http://127.0.0.1:8000", address)
        assert _as_nobody([python, "-c", health]).returncode == 0
        request = urllib.request.Request(
            f"{address}/classify",
            data=json.dumps({"inputs": "I lost my card"}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            (result,) = json.load(response)["results"]
        assert result["exit_layer"] >= 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=40) == 0
        assert _as_nobody([python, "-c", health]).returncode != 0


@contextmanager
def _served(python: Path, bundle: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command: list[str | Path] = [python.parent / "patamar", "serve", bundle]
    environment = {**_environment(), "OMP_NUM_THREADS": "1"}
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, cwd="/", env=environment) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_until_ready(address, process)
            yield address, process
        finally:
            process.kill()


def _wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "the service ended before it was ready"
        try:
            urllib.request.urlopen(f"{address}/readyz", timeout=2).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
        else:
            return
    pytest.fail("the service was not ready within two minutes")


def _health_check_of_the_image() -> str:
    text = (Path(__file__).parents[2] / "Dockerfile").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    CMD (\[.+\])$", text, re.M)
    program: str = json.loads(command)[2]
    return program


def _pip(python: Path | str, *arguments: str | Path, cwd: Path | None = None) -> None:
    command = [python, "-m", "pip", "--disable-pip-version-check", *arguments]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def _as_nobody(command: list[str | Path]) -> subprocess.CompletedProcess[str]:
    """Runs as a user who owns nothing, where the test may choose; from / as the image does."""
    root = os.geteuid() == 0
    return subprocess.run(
        command,
        cwd="/",
        env=_environment(),
        user=NOBODY if root else None,
        group=NOBODY if root else None,
        extra_groups=[] if root else None,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _environment() -> dict[str, str]:
    """The image's environment: nothing of this checkout may leak in."""
    return {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
