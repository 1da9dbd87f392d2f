"""The whole way once, as a user goes it: train, export, serve on a real port, ask, read metrics."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from cli.quickstart import prepare
from deploy.verify import unanswered

pytestmark = pytest.mark.slow

_TRAINING = """
[data]
train = "{data}/train.csv"
test = "{data}/test.csv"
validation = 0.1
calibration = 0.3

[model]
backbone = "{backbone}"
max_length = 64

[optimiser]
backbone_learning_rate = 1e-3
exit_learning_rate = 1e-3

[run]
epochs = 6
batch_size = 16
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, make_backbone: object, toy_data: Path) -> Path:
    """Folder with the configuration files of a small quickstart, made ready to run."""
    folder = tmp_path_factory.mktemp("end-to-end")
    backbone = make_backbone("bert")  # type: ignore[operator]
    (folder / "training.toml").write_text(_TRAINING.format(data=toy_data, backbone=backbone))
    (folder / "export.toml").write_text('name = "toy"\n')
    return folder


@pytest.fixture(scope="module")
def bundle(build: Path) -> Path:
    return prepare(build / "training.toml", build / "export.toml", build / "made")


@pytest.fixture(scope="module")
def address(bundle: Path, build: Path) -> Iterator[str]:
    """A real server on a free port, stopped by SIGTERM at the end."""
    log = build / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "serve", str(bundle), "--port", "0"],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield _wait_until_ready(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0, log.read_text()


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"listening on (http://\S+)", log.read_text())
        if found:
            try:
                if httpx.get(f"{found[1]}/readyz").status_code == 200:
                    return found[1]
            except httpx.TransportError:
                pass
        time.sleep(0.1)
    raise AssertionError(f"the server did not get ready: {log.read_text()}")


def test_a_second_call_finds_everything_done(
    bundle: Path, build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (bundle / "bundle.json").read_bytes()
    started = time.monotonic()
    prepare(build / "training.toml", build / "export.toml", build / "made")
    output = capsys.readouterr().out
    assert output.count("done already") == 3
    assert "exit layer" in output
    assert (bundle / "bundle.json").read_bytes() == before
    assert time.monotonic() - started < 30


def test_changing_the_export_does_not_train_again(
    bundle: Path, build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = build / "export-changed.toml"
    changed.write_text('name = "toy"\nshown_thresholds = [0.4]\n')
    prepare(build / "training.toml", changed, build / "made")
    output = capsys.readouterr().out
    assert "Training: done already" in output
    assert "threshold-0.4" in output
    # And back, for the tests that follow.
    prepare(build / "training.toml", build / "export.toml", build / "made")


def test_answers_are_right_exits_vary_and_metrics_add_up(address: str, toy_data: Path) -> None:
    from training.data.tables import read_table

    examples = read_table(
        toy_data / "test.csv", text_column="text", label_column="label", text_pair_column=None
    )
    texts = [example.text for example in examples]
    average_layers = {}
    with httpx.Client(base_url=address, timeout=60) as client:
        counts: Counter[int] = Counter()
        for threshold in (0.0, 0.05, 0.3, 1.0):
            body = {"inputs": texts, "threshold": threshold}
            answer = client.post("/classify", json=body).raise_for_status().json()
            layers = [result["exit_layer"] for result in answer["results"]]
            counts.update(layers)
            average_layers[threshold] = sum(layers) / len(layers)
            right = sum(
                result["label"] == example.label
                for result, example in zip(answer["results"], examples, strict=True)
            )
            assert right / len(examples) > 0.8
        metrics = client.get("/metrics").text
    speeds = list(average_layers.values())
    assert speeds == sorted(speeds, reverse=True)
    assert average_layers[0.0] == 3.0
    assert average_layers[1.0] == 1.0
    assert len(counts) >= 2
    for layer in (1, 2, 3):
        cumulative = sum(count for at, count in counts.items() if at <= layer)
        assert _metric(metrics, f'patamar_answer_exit_layer_bucket{{le="{layer}.0"}}') == cumulative
    assert _metric(metrics, "patamar_answer_exit_layer_sum") == sum(
        layer * count for layer, count in counts.items()
    )
    assert _metric(metrics, "patamar_requests_received_total") == 4
    assert _metric(metrics, 'patamar_requests_finished_total{outcome="answered"}') == 4


def test_a_bad_request_is_told_why_and_the_server_lives_on(address: str) -> None:
    bad = httpx.post(
        f"{address}/classify",
        content=b'{"inputs": ["a", ""], "threshhold": 1}',
        headers={"Content-Type": "application/json"},
    )
    assert bad.status_code == 422
    assert bad.headers["content-type"] == "application/problem+json"
    assert "threshhold" in json.loads(bad.content)["detail"]
    good = httpx.post(f"{address}/classify", json={"inputs": "rain and wind"})
    assert good.json()["results"][0]["label"] == "weather"


def test_a_real_prometheus_answers_every_panel_and_alert(
    address: str, scraping_prometheus: Callable[[int], AbstractContextManager[str]]
) -> None:
    port = int(address.rsplit(":", 1)[1])
    with scraping_prometheus(port) as prometheus, httpx.Client(base_url=address) as client:
        problems = ["not asked yet"]
        deadline = time.monotonic() + 60
        while problems and time.monotonic() < deadline:
            for _ in range(20):
                client.post("/classify", json={"inputs": ["rain", "bread and song"]})
                client.post("/classify", json={"inputs": ""})
            time.sleep(1)
            problems = unanswered(prometheus, window="10s")
    assert not problems, "\n".join(problems)


def _metric(text: str, name: str) -> float:
    line = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    return float(line.rsplit(" ", 1)[1])
