"""Differences of two scrapes, with known answers."""

from __future__ import annotations

import pytest

from bench.serving.server_metrics import Scrape, parse_scrape, work_between


def _scrape(at: float, **counts: float) -> Scrape:
    text = f"""
# TYPE patamar_requests_received_total counter
patamar_requests_received_total {counts["received"]}
# TYPE patamar_requests_finished_total counter
patamar_requests_finished_total{{outcome="answered"}} {counts["answered"]}
patamar_requests_finished_total{{outcome="rejected"}} {counts["rejected"]}
patamar_requests_finished_total{{outcome="failed"}} 1
patamar_requests_finished_total{{outcome="cancelled"}} 0
# TYPE patamar_stage_seconds histogram
patamar_stage_seconds_sum{{stage="1"}} {counts["busy"]}
patamar_stage_seconds_count{{stage="1"}} 5
patamar_stage_seconds_sum{{stage="2"}} {counts["busy"]}
patamar_stage_seconds_count{{stage="2"}} 5
# TYPE patamar_stage_rows histogram
patamar_stage_rows_sum 40
patamar_stage_rows_count 10
# TYPE patamar_answer_exit_layer histogram
patamar_answer_exit_layer_sum {counts["layers"]}
patamar_answer_exit_layer_count {counts["answered"]}
"""
    return parse_scrape(text, at)


def test_what_happened_between_two_scrapes_is_their_difference() -> None:
    before = _scrape(10.0, received=10, answered=8, rejected=1, busy=1.0, layers=20)
    after = _scrape(14.0, received=30, answered=24, rejected=3, busy=2.5, layers=52)
    work = work_between(before, after)
    assert work.seconds == 4
    assert (work.received, work.answered, work.rejected, work.failed) == (20, 16, 2, 0)
    assert work.busy_share == pytest.approx(2 * 1.5 / 4)
    assert work.average_exit_layer == pytest.approx(2.0)
    assert work.rows_a_batch is None  # no stage ran in between
    assert work.lost == 2


def test_labels_choose_samples_and_what_is_not_there_is_0() -> None:
    found = _scrape(0.0, received=1, answered=3, rejected=4, busy=1, layers=1)
    assert found.total("patamar_requests_finished_total") == 8
    assert found.total("patamar_requests_finished_total", outcome="rejected") == 4
    assert found.total("patamar_nothing") == 0
