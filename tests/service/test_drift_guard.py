"""The drift guard: which points it watches, when it suspends them, what a restart remembers."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multi_exit.bundle import Bundle, BundleManifest, OperatingPoint
from multi_exit.certificate import (
    Certificate,
    accuracy_drop_certificate,
    consistency_certificate,
    expected_disagreement_certificate,
)
from multi_exit.errors import ConfigurationError
from multi_exit.policy import Policy
from service.drift_guard import DriftGuard, WatchedPoint, watched_points
from service.drift_state import DriftStateFile
from service.policies import Policies, PolicyBounds
from service.shadow_sample import ShadowRow

POINTS = (
    WatchedPoint(name="fast", policy=Policy((0.5, 0.0)), epsilon=0.05),
    WatchedPoint(name="slow", policy=Policy((0.1, 0.0)), epsilon=0.01),
)
# Fast leaves at the first exit and is wrong there; slow goes on.
FAST_WRONG = ShadowRow(entropies=(0.3, 0.2), labels=(0, 1))
BOTH_WRONG = ShadowRow(entropies=(0.05, 0.2), labels=(0, 1))
RIGHT = ShadowRow(entropies=(0.05, 0.2), labels=(1, 1))


def _guard(path: Path | None = None, **more: Any) -> DriftGuard:
    state = None if path is None else DriftStateFile(path, bundle="aaaaaaaaaaaa")
    arguments: dict[str, Any] = {"alpha": 0.01, "state": state, "clock": lambda: 0.0, **more}
    return DriftGuard(POINTS, **arguments)


def _alarmed(guard: DriftGuard, row: ShadowRow) -> int:
    """Shows the guard equal rows until it suspends a point; how many it took."""
    for number in range(1, 1000):
        guard.observe(row)
        if guard.suspended:
            return number
    pytest.fail("it did not alarm")


def test_each_row_counts_for_every_point_by_what_that_point_would_have_answered() -> None:
    guard = _guard()
    for row in (FAST_WRONG, BOTH_WRONG, RIGHT):
        guard.observe(row)
    counts = {name: (test.rows, test.disagreements) for name, test in guard.tests.items()}
    assert counts == {"fast": (3, 2), "slow": (3, 1)}


def test_a_point_that_breaks_its_promise_is_suspended_alone_and_for_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = _guard()
    with caplog.at_level(logging.WARNING):
        _alarmed(guard, FAST_WRONG)
        assert guard.is_suspended("fast")
        assert not guard.is_suspended("slow")
        assert not guard.is_suspended("a point that nobody watches")
        for _ in range(2000):
            guard.observe(RIGHT)
    assert guard.suspended == ("fast",)
    assert guard.tests["fast"].e_value < 100
    assert len(caplog.records) == 1
    assert "operating point fast is suspended" in caplog.text


def test_promises_that_are_kept_raise_no_alarm() -> None:
    guard = _guard()
    rng = np.random.default_rng(3)
    for wrong in rng.random(4000) < 0.008:
        guard.observe(BOTH_WRONG if wrong else RIGHT)
    assert guard.suspended == ()


def test_evidence_and_alarms_outlive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "drift.json"
    first = _guard(path)
    _alarmed(first, FAST_WRONG)
    first.observe(BOTH_WRONG)
    first.close()
    second = _guard(path)
    assert second.tests == first.tests
    assert second.suspended == ("fast",)
    # Neither another alpha nor quiet rows take an alarm back.
    assert _guard(path, alpha=1e-6).suspended == ("fast",)


def test_another_bundle_s_alarm_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "drift.json"
    guard = _guard(path)
    _alarmed(guard, FAST_WRONG)
    guard.close()
    assert _guard(state=DriftStateFile(path, bundle="bbbbbbbbbbbb")).suspended == ()


def test_the_state_is_saved_now_and_then_and_at_once_on_an_alarm(tmp_path: Path) -> None:
    path, now = tmp_path / "drift.json", [0.0]
    state = DriftStateFile(path, bundle="aaaaaaaaaaaa")
    guard = _guard(state=state, clock=lambda: now[0])
    saves: list[Any] = []
    write = state.save
    state.save = lambda tests: (saves.append(dict(tests)), write(tests))  # type: ignore[assignment,method-assign,return-value,func-returns-value]
    for _ in range(50):
        guard.observe(RIGHT)
    assert saves == []
    now[0] = 61.0
    guard.observe(RIGHT)
    guard.observe(RIGHT)
    assert len(saves) == 1
    _alarmed(guard, FAST_WRONG)
    assert len(saves) == 2
    assert saves[-1]["fast"].alarm
    guard.close()
    assert json.loads(path.read_text(encoding="utf-8"))["tests"]["fast"]["alarm"] is True


def test_a_state_that_watched_another_promise_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "drift.json"
    guard = _guard(path)
    guard.observe(RIGHT)
    guard.close()
    state = DriftStateFile(path, bundle="aaaaaaaaaaaa")
    other = WatchedPoint(name="fast", policy=POINTS[0].policy, epsilon=0.02)
    with pytest.raises(ConfigurationError, match=r"watches 0\.05.*promises 0\.02"):
        DriftGuard([other], alpha=0.01, state=state, clock=lambda: 0.0)


def _certified(name: str, *certificates: Certificate | None) -> Callable[..., OperatingPoint]:
    def make(point: OperatingPoint, **changes: Any) -> OperatingPoint:
        assert all(certificates)
        return point.model_copy(update={"name": name, "certificates": certificates, **changes})

    return make


def test_watched_are_points_that_promise_agreement_by_the_least_they_promise(
    tiny_bundle: Bundle,
) -> None:
    (plain,) = tiny_bundle.manifest.operating_points

    def consistent(epsilon: float, label: str | None = None) -> Certificate | None:
        return consistency_certificate(0, 2000, epsilon=epsilon, delta=0.05, label=label)

    expected = expected_disagreement_certificate(0, 2000, epsilon=0.002)
    accurate = accuracy_drop_certificate(0, 0, 2000, epsilon=0.01, delta=0.05)
    points = (
        plain,
        _certified("sure", consistent(0.02), consistent(0.005), expected)(plain),
        _certified("on average", expected, accurate)(plain),
        _certified("accurate", accurate)(plain),
        _certified("one class", consistent(0.01, "left"))(plain),
        _certified("full depth", consistent(0.01))(plain, thresholds=(0.0, 0.0, 0.9)),
    )
    manifest = tiny_bundle.manifest.model_copy(update={"operating_points": points})
    found = watched_points(manifest)
    assert {point.name: point.epsilon for point in found} == {"sure": 0.005, "on average": 0.002}
    assert all(point.policy == plain.policy for point in found)


def test_a_suspended_point_resolves_to_full_depth_and_says_so(tiny_bundle: Bundle) -> None:
    manifest: BundleManifest = tiny_bundle.manifest.model_copy(update={"default_point": "fast"})
    guard = DriftGuard(
        [WatchedPoint(name="fast", policy=Policy((0.5, 0.4, 0.0)), epsilon=0.05)],
        alpha=0.01,
        state=None,
        clock=lambda: 0.0,
    )
    policies = Policies(manifest, PolicyBounds(), is_suspended=guard.is_suspended)
    assert "suspended" not in policies.default.document
    _alarmed(guard, ShadowRow(entropies=(0.1, 0.1, 0.1), labels=(0, 1, 1)))
    assert policies.default.policy == Policy.constant(0.0, 3)
    assert policies.default.document == {
        "kind": "default",
        "name": "fast",
        "thresholds": [0.0, 0.0, 0.0],
        "suspended": True,
    }


def test_the_drift_test_itself_needs_nothing_heavy() -> None:
    code = (
        "import sys, multi_exit.drift;"
        "print(sorted({'pydantic', 'onnxruntime', 'tokenizers', 'torch', 'fastapi'}"
        " & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.strip() == "[]"
