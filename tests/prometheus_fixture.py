"""A real Prometheus for tests: the committed configuration, another target and pace."""

from __future__ import annotations

import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import yaml

from bench.peers.comparison import free_port
from deploy.alerts.main import GENERATED as RULES
from deploy.alerts.rules import JOB

SCRAPE_SECONDS = 1


@pytest.fixture(scope="session")
def scraping_prometheus(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[int], AbstractContextManager[str]]:
    """Starts a Prometheus that scrapes a port of this machine; the context is its address."""
    executable = shutil.which("prometheus")
    if executable is None:
        pytest.skip("needs Prometheus (Debian package prometheus)")
    return lambda port: _prometheus(executable, tmp_path_factory.mktemp("prometheus"), port)


@contextmanager
def _prometheus(executable: str, folder: Path, scraped_port: int) -> Iterator[str]:
    """The committed configuration, but for the target and the pace."""
    configuration = yaml.safe_load((RULES.parent / "prometheus.yml").read_text(encoding="utf-8"))
    pace = f"{SCRAPE_SECONDS}s"
    configuration["global"] = {"scrape_interval": pace, "evaluation_interval": pace}
    configuration["rule_files"] = [str(RULES)]
    configuration["scrape_configs"] = [
        {**job, "static_configs": [{"targets": [f"127.0.0.1:{scraped_port}"]}]}
        for job in configuration["scrape_configs"]
        if job["job_name"] == JOB
    ]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    port = free_port()
    command = [
        executable,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    log = folder / "log"
    with log.open("wb") as output, subprocess.Popen(command, stderr=output) as process:
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        try:
            urllib.request.urlopen(f"{address}/-/ready", timeout=2).close()
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        else:
            return
        time.sleep(0.1)
    pytest.fail(f"Prometheus was not ready within a minute:\n{log.read_text(encoding='utf-8')}")
