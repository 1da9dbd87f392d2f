"""Metrics have the names that dashboards ask for, and buckets where the values are."""

from __future__ import annotations

from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from multi_exit.drift import DriftTest
from service import metric_names
from service.metrics import SECONDS_BUCKETS, Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry(), layers=4, stages=3)


def test_every_name_of_the_table_is_registered_and_no_other(metrics: Metrics) -> None:
    table = {value for name, value in vars(metric_names).items() if name.isupper()}
    exposed = set()
    for family in metrics.registry.collect():
        exposed.add(family.name + ("_total" if family.type == "counter" else ""))
    assert exposed == table


def test_exit_layers_have_one_bucket_each(metrics: Metrics) -> None:
    metrics.answered(exit_layer=2, wait_seconds=0.0)
    text = generate_latest(metrics.registry).decode()
    counts = {
        edge: metrics.registry.get_sample_value(
            f"{metric_names.ANSWER_EXIT_LAYER}_bucket", {"le": edge}
        )
        for edge in ("1.0", "2.0", "3.0", "4.0", "+Inf")
    }
    assert counts == {"1.0": 0, "2.0": 1, "3.0": 1, "4.0": 1, "+Inf": 1}
    assert text.count(f"{metric_names.ANSWER_EXIT_LAYER}_bucket") == 5


def test_layers_run_and_saved_add_up_to_the_model(metrics: Metrics) -> None:
    for layer in (1, 2, 4):
        metrics.answered(exit_layer=layer, wait_seconds=0.0)
    assert metrics.registry.get_sample_value(metric_names.LAYERS_RUN) == 7
    assert metrics.registry.get_sample_value(metric_names.LAYERS_SAVED) == 5


def test_time_buckets_are_geometric_from_a_quarter_of_a_millisecond() -> None:
    assert SECONDS_BUCKETS[0] == 0.00025
    ratios = {later / earlier for earlier, later in pairwise(SECONDS_BUCKETS)}
    assert ratios == {2.0}
    assert SECONDS_BUCKETS[-1] > 30


def test_levels_are_read_when_scraped(metrics: Metrics) -> None:
    level = {"rows": 3, "tokens": 40, "ready": False}
    metrics.watch(
        rows_at=lambda stage: level["rows"] * stage, waiting_tokens=lambda: level["tokens"]
    )
    metrics.watch_ready(lambda: bool(level["ready"]))
    level["ready"] = True
    value = metrics.registry.get_sample_value
    assert value(metric_names.ROWS_IN_FLIGHT, {"stage": "2"}) == 6
    assert value(metric_names.WAITING_TOKENS) == 40
    assert value(metric_names.READY) == 1


def test_drift_tests_are_read_by_point_when_scraped(metrics: Metrics) -> None:
    tests = {name: DriftTest(epsilon=0.01, alpha=0.01) for name in ("fast", "slow")}
    metrics.watch_drift(lambda: tests)
    value = metrics.registry.get_sample_value
    assert value(metric_names.DRIFT_E_VALUE, {"point": "fast"}) == 1
    assert value(metric_names.DRIFT_DISAGREEMENT_RATIO, {"point": "fast"}) == 0
    while not tests["fast"].alarm:
        tests["fast"] = tests["fast"].updated(True)
    assert value(metric_names.DRIFT_E_VALUE, {"point": "fast"}) == tests["fast"].e_value > 100
    assert value(metric_names.DRIFT_DISAGREEMENT_RATIO, {"point": "fast"}) == 1
    assert value(metric_names.DRIFT_ALARM, {"point": "fast"}) == 1
    assert value(metric_names.DRIFT_ALARM, {"point": "slow"}) == 0


def test_shadow_rows_are_counted_apart_from_answers(metrics: Metrics) -> None:
    metrics.shadow_row("measured")
    metrics.shadow_ran(layers=3)
    value = metrics.registry.get_sample_value
    assert value(metric_names.SHADOW_ROWS, {"outcome": "measured"}) == 1
    assert value(metric_names.SHADOW_ROWS, {"outcome": "dropped"}) == 0
    assert value(metric_names.SHADOW_LAYERS_RUN) == 3
    assert value(metric_names.LAYERS_RUN) == 0


def test_two_services_in_one_process_count_apart() -> None:
    first = Metrics(CollectorRegistry(), layers=4, stages=3)
    second = Metrics(CollectorRegistry(), layers=12, stages=3)
    first.request_received()
    assert second.registry.get_sample_value(metric_names.REQUESTS_RECEIVED) == 0
