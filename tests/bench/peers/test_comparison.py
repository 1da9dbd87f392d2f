"""The comparison's arithmetic, and one short real comparison over HTTP where wrk is installed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench.peers.comparison import PEER, compare, one_point_operating_point
from bench.serving.load import LoadSample
from cli.main import main
from multi_exit.bundle import Bundle
from multi_exit.errors import ConfigurationError


def _sample(server: str, connections: int, rate: float, latency: float) -> LoadSample:
    return LoadSample(
        server=server,
        connections=connections,
        seconds=1.0,
        requests=int(rate),
        errors=0,
        requests_per_second=rate,
        p50_ms=latency,
        p99_ms=2 * latency,
    )


def test_ratios_are_taken_within_a_round() -> None:
    samples = []
    for noise in (1.0, 0.5, 2.0):
        samples += [
            _sample(PEER, 4, 100 * noise, 10 / noise),
            _sample("ours", 4, 300 * noise, 5 / noise),
        ]
    (found,) = compare(samples)
    assert found.throughput.median == pytest.approx(3.0)
    assert found.p50.median == pytest.approx(0.5)
    assert found.p99.median == pytest.approx(0.5)


def test_the_one_point_operating_point_is_the_fastest_within_a_point(toy_bundle: Bundle) -> None:
    chosen = one_point_operating_point(toy_bundle.manifest)
    assert chosen.accuracy is not None
    for point in toy_bundle.manifest.operating_points:
        assert point.accuracy is not None
        assert point.full_depth_accuracy is not None
        within = point.accuracy >= point.full_depth_accuracy - 0.01
        assert not within or point.speedup <= chosen.speedup


def test_a_bundle_calibrated_without_labels_is_refused(toy_bundle: Bundle) -> None:
    points = tuple(
        point.model_copy(update={"accuracy": None})
        for point in toy_bundle.manifest.operating_points
    )
    manifest = toy_bundle.manifest.model_copy(update={"operating_points": points})
    with pytest.raises(ConfigurationError, match="no operating point"):
        one_point_operating_point(manifest)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk (Debian package wrk)")
def test_a_short_comparison_over_http_answers_without_errors(
    toy_bundle: Bundle, toy_checkpoint: Path, toy_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench", "peers", str(toy_bundle.path), "--checkpoint", str(toy_checkpoint)]
    arguments += ["--texts", str(toy_data / "test.csv"), "--connections", "2"]
    assert main([*arguments, "--rounds", "2", "--seconds", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in figures["comparisons"]} >= {"patamar, full depth"}
    assert all(sample["requests"] > 0 for sample in figures["samples"])
    assert sum(sample["errors"] for sample in figures["samples"]) == 0
