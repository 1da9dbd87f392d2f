"""A real Prometheus scrapes the service's metrics and answers every panel and every alert."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from deploy.alerts.rules import all_alerts
from deploy.verify import questions, unanswered
from multi_exit.drift import DriftTest
from service.metrics import Metrics

pytestmark = pytest.mark.slow

ScrapingPrometheus = Callable[[int], AbstractContextManager[str]]

LAYERS = 6
SCRAPE_SECONDS = 1
WINDOW = "10s"


class Traffic:
    """The service's own metrics, with a little of everything that can happen to requests."""

    def __init__(self) -> None:
        self.metrics = Metrics(CollectorRegistry(), layers=LAYERS, stages=LAYERS)
        self.metrics.serves(bundle="0123456789ab", provider="cpu", precision="fp32")
        self.metrics.watch(rows_at=lambda stage: 3, waiting_tokens=lambda: 40)
        self.metrics.watch_ready(lambda: True)
        calm = DriftTest(epsilon=0.01, alpha=0.01).updated(False)
        self.metrics.watch_drift(lambda: {"disagreement<=1%": calm})

    def flow(self) -> None:
        """A request answered at layer 2, one rejected, and one that failed for want of numbers."""
        for _ in range(3):
            self.metrics.request_received()
            self.metrics.request_took(0.02)
            self.metrics.tokenised(0.0005, truncated=1)
        self.metrics.stage_ran(stage=1, rows=2, seconds=0.005)
        self.metrics.answered(exit_layer=2, wait_seconds=0.001)
        self.metrics.shadow_ran(layers=LAYERS - 2)
        self.metrics.shadow_row("measured")
        self.metrics.non_finite(1)
        self.metrics.request_finished("answered", None)
        self.metrics.request_finished("rejected", "overloaded")
        self.metrics.request_finished("failed", None)
        for status in (200, 429, 500):
            self.metrics.responded(status=status, route="/classify")


@pytest.fixture(scope="module")
def prometheus(
    scraping_prometheus: ScrapingPrometheus,
) -> Iterator[str]:
    """Address of a Prometheus that has scraped flowing traffic for longer than the window."""
    traffic = Traffic()
    server, thread = start_http_server(0, addr="127.0.0.1", registry=traffic.metrics.registry)
    stop = threading.Event()
    flow = threading.Thread(target=_keep_flowing, args=(traffic, stop))
    flow.start()
    try:
        with scraping_prometheus(server.server_port) as address:
            yield address
    finally:
        stop.set()
        flow.join()
        server.shutdown()
        server.server_close()
        thread.join()


def test_every_panel_and_every_alert_has_data(prometheus: str) -> None:
    deadline = time.monotonic() + 30
    while (problems := unanswered(prometheus, window=WINDOW)) and time.monotonic() < deadline:
        time.sleep(SCRAPE_SECONDS)
    assert not problems, "\n".join(problems)


def test_a_question_about_an_unknown_metric_or_in_bad_grammar_is_reported(
    prometheus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = questions(window=WINDOW)
    asked = [
        type(first)(asked_by="renamed", expression="patamar_no_such_metric"),
        type(second)(asked_by="misspelt", expression="sum(rate(patamar_ready[1m])"),
    ]
    monkeypatch.setattr("deploy.verify.questions", lambda *, window: iter(asked))
    renamed, misspelt = unanswered(prometheus, window=WINDOW)
    assert renamed.startswith("renamed: no data")
    assert "parse error" in misspelt


def test_prometheus_evaluates_all_rules_without_an_error(prometheus: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        groups = _get(f"{prometheus}/api/v1/rules")["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        if all(rule["health"] != "unknown" for rule in rules) or time.monotonic() > deadline:
            break
        time.sleep(SCRAPE_SECONDS)
    assert {rule["name"] for rule in rules} == {alert.name for alert in all_alerts()}
    assert [rule for rule in rules if rule["health"] != "ok"] == []


def test_rows_that_are_not_finite_page_at_once(prometheus: str) -> None:
    deadline = time.monotonic() + 30
    firing: set[str] = set()
    while "PatamarNonFinite" not in firing and time.monotonic() < deadline:
        alerts = _get(f"{prometheus}/api/v1/alerts")["data"]["alerts"]
        firing = {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}
        time.sleep(SCRAPE_SECONDS)
    assert firing == {"PatamarNonFinite"}


def _keep_flowing(traffic: Traffic, stop: threading.Event) -> None:
    while not stop.wait(0.1):
        traffic.flow()


def _get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=30) as response:
        return json.load(response)
