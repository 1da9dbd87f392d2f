"""Ready means warmed, checked and alive; anything else is a 503 with a reason."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from multi_exit.bundle import Bundle
from multi_exit.errors import BundleError, ConfigurationError
from service import metric_names as names
from service.app import create_app
from service.settings import Settings


def test_a_service_is_alive_before_it_is_ready_and_refuses_until_then(
    make_bundle: Callable[..., Bundle], serve: Any, eventually: Any
) -> None:
    slow_to_warm = make_bundle(spin=300_000)  # eight passes of the slow stage
    with serve(slow_to_warm, ready=False) as running:
        assert httpx.get(f"{running.url}/healthz").status_code == 200
        unready = httpx.get(f"{running.url}/readyz")
        assert unready.status_code == 503
        assert "starting" in unready.json()["detail"]
        assert running.metric(names.READY) == 0
        refused = running.post(inputs="w1")
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
        assert httpx.get(f"{running.url}/model").status_code == 503
        eventually(lambda: running.served.readiness.ready, seconds=30)
        assert httpx.get(f"{running.url}/readyz").json()["bundle"] == slow_to_warm.identifier
        assert httpx.head(f"{running.url}/readyz").status_code == 200
        assert running.metric(names.READY) == 1
        # Warming and golden examples are no traffic.
        assert running.metric(f"{names.ANSWER_EXIT_LAYER}_count") == 0
        assert running.metric(f"{names.STAGE_ROWS}_count") == 0
        assert (
            running.metric(
                names.BUNDLE_INFO,
                bundle=slow_to_warm.identifier,
                provider="cpu",
                precision="fp32",
            )
            == 1
        )


def test_a_golden_example_that_is_answered_otherwise_keeps_the_service_unready(
    make_bundle: Callable[..., Bundle], serve: Any, eventually: Any
) -> None:
    with serve(make_bundle(shift=0.01), ready=False) as running:
        readiness = running.served.readiness
        eventually(lambda: "failed" in readiness.detail)
        response = httpx.get(f"{running.url}/readyz")
        assert response.status_code == 503
        assert "golden example" in response.json()["detail"]
        assert running.post(inputs="w1").status_code == 503


def test_when_the_worker_ends_readyz_says_so_and_nothing_hangs(
    tiny_bundle: Bundle, serve: Any, eventually: Any
) -> None:
    with serve(tiny_bundle) as running:
        running.served.readiness.engine._worker.order("nonsense")
        eventually(lambda: not running.served.readiness.ready)
        response = httpx.get(f"{running.url}/readyz")
        assert response.status_code == 503
        assert "worker ended" in response.json()["detail"]
        started = time.monotonic()
        assert running.post(inputs="w1").status_code == 503
        assert time.monotonic() - started < 2
        assert httpx.get(f"{running.url}/healthz").status_code == 200
        assert running.metric(names.READY) == 0


def test_a_damaged_or_missing_bundle_stops_the_start(
    make_bundle: Callable[..., Bundle], tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match="not a bundle"):
        create_app(Settings(bundle=tmp_path))
    bundle = make_bundle()
    with (bundle.path / "stage_02.onnx").open("ab") as file:
        file.write(b"x")
    with pytest.raises(BundleError, match="not what was sealed"):
        create_app(Settings(bundle=bundle.path))


def test_limits_that_refuse_every_long_text_stop_the_start(tiny_bundle: Bundle) -> None:
    with pytest.raises(ConfigurationError, match="max_waiting_tokens 31"):
        create_app(Settings(bundle=tiny_bundle.path, max_waiting_tokens=31))


def test_an_unknown_default_point_stops_the_start(tiny_bundle: Bundle) -> None:
    with pytest.raises(ConfigurationError, match="it has fast"):
        create_app(Settings(bundle=tiny_bundle.path, default_point="slow"))


def test_draining_says_so_and_watches_no_longer_but_still_answers(
    tiny_bundle: Bundle, serve: Any
) -> None:
    with serve(tiny_bundle, shadow_share=1.0) as running:
        running.post(inputs="w1", threshold=1.0)
        running.served.readiness.drain()
        response = httpx.get(f"{running.url}/readyz")
        assert response.status_code == 503
        assert "shutting down" in response.json()["detail"]
        before = running.metric(names.SHADOW_LAYERS_RUN)
        assert running.post(inputs="w1", threshold=1.0).status_code == 200
        assert running.metric(names.SHADOW_LAYERS_RUN) <= before + tiny_bundle.manifest.layers
        assert len(running.served.watch.sample) == 0
