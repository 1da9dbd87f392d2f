"""A real server whose bundle promises what the texts it gets do not keep."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from multi_exit.bundle import Bundle, load_bundle
from multi_exit.certificate import consistency_certificate
from multi_exit.errors import ConfigurationError
from service import metric_names as names
from service.app import create_app
from service.settings import Settings

TEXTS = [f"w{number} w{number + 7}" for number in range(50)]
FALSE_PROMISE = 0.001


def _promising(bundle: Bundle, folder: Path, name: str = "boastful") -> Bundle:
    """The tiny bundle with a point that leaves at the first exit whatever that says."""
    shutil.copytree(bundle.path, folder)
    certificate = consistency_certificate(0, 10_000, epsilon=FALSE_PROMISE, delta=0.05)
    (point,) = bundle.manifest.operating_points
    point = point.model_copy(
        update={"name": name, "thresholds": (1.0, 1.0, 0.0), "certificates": (certificate,)}
    )
    manifest = bundle.manifest.model_copy(
        update={"operating_points": (point,), "default_point": name}
    )
    (folder / "bundle.json").write_text(manifest.model_dump_json(), encoding="utf-8")
    return load_bundle(folder)


@pytest.fixture
def boastful(tiny_bundle: Bundle, tmp_path: Path) -> Bundle:
    return _promising(tiny_bundle, tmp_path / "bundle")


def _drift(running: Any) -> Any:
    response = httpx.get(f"{running.url}/readyz")
    assert response.status_code == 200
    return response.json()["drift"]


def _layers(answer: dict[str, Any]) -> set[int]:
    return {result["exit_layer"] for result in answer["results"]}


def test_an_alarm_puts_a_point_to_full_depth_until_another_bundle_is_served(
    boastful: Bundle, tiny_bundle: Bundle, serve: Any, eventually: Any, tmp_path: Path
) -> None:
    state, log = tmp_path / "drift.json", tmp_path / "shadow.jsonl"
    full_depth = boastful.manifest.layers
    watching = {"shadow_share": 1.0, "drift_state_file": state, "max_shadow_rows": 200}
    with serve(boastful, **watching, shadow_log=log) as running:
        assert _drift(running) == {"suspended": []}
        before = running.post(inputs=TEXTS).json()
        assert _layers(before) == {1}
        assert "suspended" not in before["policy"]
        eventually(lambda: running.metric(names.SHADOW_ROWS, outcome="measured") == len(TEXTS))
        assert _drift(running) == {"suspended": ["boastful"]}

        after = running.post(inputs=TEXTS).json()
        assert _layers(after) == {full_depth}
        assert after["policy"]["name"] == "boastful"
        assert after["policy"]["suspended"] is True
        assert set(after["policy"]["thresholds"]) == {0.0}
        # What a request asks for itself was never promised, and is not taken away.
        assert _layers(running.post(inputs=TEXTS[:3], threshold=1.0).json()) == {1}

        disagreeing = sum(
            old["label"] != new["label"]
            for old, new in zip(before["results"], after["results"], strict=True)
        )
        eventually(lambda: running.metric(names.SHADOW_ROWS, outcome="measured") >= 103)
        ratio = running.metric(names.DRIFT_DISAGREEMENT_RATIO, point="boastful")
        assert ratio > disagreeing / len(TEXTS) / 2 > FALSE_PROMISE
        assert running.metric(names.DRIFT_ALARM, point="boastful") == 1
        assert running.metric(names.DRIFT_E_VALUE, point="boastful") > 100
        assert running.metric(names.READY) == 1
        assert running.metric(f"{names.ANSWER_EXIT_LAYER}_count") == 103

    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 103
    assert all(
        line.keys() == {"bundle", "entropies", "labels", "sampled"}
        and line["bundle"] == boastful.identifier
        and len(line["entropies"]) == len(line["labels"]) == len(boastful.manifest.exits)
        for line in lines
    )
    answered = [boastful.manifest.labels[line["labels"][0]] for line in lines[: len(TEXTS)]]
    assert answered == [result["label"] for result in before["results"]]

    with serve(boastful, drift_state_file=state) as running:  # watched no longer, but remembered
        assert _drift(running) == {"suspended": ["boastful"]}
        assert _layers(running.post(inputs=TEXTS[:3]).json()) == {full_depth}

    other = _promising(tiny_bundle, tmp_path / "other", name="other")
    with serve(other, drift_state_file=state) as running:
        assert _drift(running) == {"suspended": []}
        assert _layers(running.post(inputs=TEXTS[:3]).json()) == {1}


def test_nothing_is_watched_unless_asked_for(boastful: Bundle, serve: Any) -> None:
    with serve(boastful) as running:
        running.post(inputs=TEXTS)
        assert _drift(running) == {"suspended": []}
        assert running.metric(names.SHADOW_LAYERS_RUN) == 0
        assert running.served.watch.guard.tests == {}


def test_files_that_cannot_be_used_stop_the_start(boastful: Bundle, tmp_path: Path) -> None:
    damaged = tmp_path / "drift.json"
    damaged.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"drift\.json is damaged"):
        create_app(Settings(bundle=boastful.path, drift_state_file=damaged))
    with pytest.raises(ConfigurationError, match="shadow_log"):
        create_app(Settings(bundle=boastful.path, shadow_share=0.1, shadow_log=tmp_path))
