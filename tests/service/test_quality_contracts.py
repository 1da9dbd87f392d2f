"""Quality contracts over a real port: asked for, answered, refused, and slid along under load."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from multi_exit.bundle import Bundle
from service import metric_names as names
from service.schemas import ClassifyAnswer
from tests.service.conftest import MakeBundle, Running, Serve, certified_point

TEXTS = [f"w{number} w{number + 3}" for number in range(40)]
POINTS = (
    certified_point("careful", (0.05, 0.05, 0.0), 1.5, consistency=0.01),
    certified_point("quick", (0.3, 0.4, 0.0), 2.5, consistency=0.02, accuracy_drop=0.01),
    certified_point("hasty", (1.0, 1.0, 0.0), 4.0, consistency=0.05),
)


@pytest.fixture(scope="module")
def promising(make_bundle: MakeBundle) -> Bundle:
    return make_bundle(points=POINTS, default_point="careful")


@pytest.fixture(scope="module")
def running(promising: Bundle, serve: Serve) -> Iterator[Running]:
    with serve(promising, fastest_point="quick") as running:
        yield running


def _answer(running: Running, **knobs: Any) -> ClassifyAnswer:
    response = running.post(inputs=TEXTS, **knobs)
    assert response.status_code == 200, response.text
    return ClassifyAnswer.model_validate(response.json(), strict=True, extra="forbid")


@pytest.mark.parametrize(
    ("knobs", "kind", "name"),
    [
        ({}, "default", "careful"),
        ({"max_accuracy_drop": 0.01}, "operating_point", "quick"),
        ({"max_disagreement": 0.015}, "operating_point", "careful"),
        ({"max_disagreement": 0.02}, "operating_point", "quick"),
        ({"speed": 2.2}, "operating_point", "quick"),
    ],
)
def test_a_contract_is_answered_under_the_point_that_the_answer_names(
    running: Running, knobs: dict[str, float], kind: str, name: str
) -> None:
    answer = _answer(running, **knobs)
    point = next(point for point in POINTS if point.name == name)
    assert (answer.policy.kind, answer.policy.name) == (kind, name)
    assert answer.policy.thresholds == list(point.thresholds)
    assert answer.policy.asked == (knobs or None)
    assert [(g.kind, g.epsilon) for g in answer.policy.guarantees or ()] == [
        (certificate.kind, certificate.epsilon) for certificate in point.certificates
    ]
    # What ran is what those thresholds say of the entropies at every exit.
    explained = running.post(inputs=TEXTS, threshold=0, explain=True).json()["results"]
    for result, everything in zip(answer.results, explained, strict=True):
        passed = everything["explain"]
        expected = next(
            exit_["exit_layer"]
            for exit_, threshold in zip(passed, point.thresholds, strict=True)
            if exit_["entropy"] < threshold or exit_ is passed[-1]
        )
        assert result.exit_layer == expected


@pytest.mark.parametrize(
    ("knobs", "kind", "members"),
    [
        ({"max_disagreement": 0.001}, "unreachable_contract", {"nearest": 0.01}),
        ({"max_accuracy_drop": 1e-9}, "unreachable_contract", {"nearest": 0.01}),
        # hasty would do, but the operator forbids it.
        ({"speed": 3}, "unreachable_contract", {"nearest": 2.5}),
        ({"threshold": 0.9}, "invalid_request", {"setting": "fastest_point", "limit": 0.3}),
        ({"max_layer": 1}, "invalid_request", {"setting": "fastest_point"}),
        ({"speed": 2, "threshold": 0.1}, "invalid_request", {"field": "speed"}),
        ({"max_disagreement": 0.01, "max_layer": 2}, "invalid_request", {"field": "max_layer"}),
        ({"speed": 0.5}, "invalid_request", {"field": "speed"}),
        ({"max_disagreement": 0}, "invalid_request", {"field": "max_disagreement"}),
        ({"max_disagreement": 1}, "invalid_request", {"field": "max_disagreement"}),
        ({"max_accuracy_drop": "1%"}, "invalid_request", {"field": "max_accuracy_drop"}),
    ],
)
def test_what_cannot_be_kept_is_a_clear_422(
    running: Running, knobs: dict[str, Any], kind: str, members: dict[str, Any]
) -> None:
    response = running.post(inputs="w1", **knobs)
    assert response.status_code == 422
    problem = response.json()
    assert problem["type"] == f"urn:patamar:problem:{kind}"
    assert problem["field"] in knobs
    assert members.items() <= problem.items()
    if "nearest" in problem:
        # What is named can be had.
        assert running.post(inputs="w1", **{problem["field"]: problem["nearest"]}).is_success


def test_model_lists_points_that_anyone_can_check(running: Running) -> None:
    document = httpx.get(f"{running.url}/model").json()
    assert document["fastest_point"] == "quick"
    points = {point["name"]: point for point in document["operating_points"]}
    assert set(points) == {"fast", "careful", "quick", "hasty"}
    for point in points.values():
        assert {"thresholds", "average_layers", "speedup", "certificates"} <= set(point)
        for certificate in point["certificates"]:
            assert {"kind", "epsilon", "delta", "samples", "errors"} <= set(certificate)


def test_under_load_the_default_slides_and_comes_back(
    make_bundle: MakeBundle, serve: Serve
) -> None:
    bundle = make_bundle(points=POINTS, default_point="careful", spin=20_000, golden=False)
    with serve(bundle, slide_to_point="quick", slide_at_wait_seconds=0.02) as running:
        assert _answer(running).policy.kind == "default"
        answers: list[ClassifyAnswer] = []
        insisting: list[ClassifyAnswer] = []
        until = time.monotonic() + 3

        def load() -> None:
            while time.monotonic() < until:
                answers.append(_answer(running))
                insisting.append(_answer(running, max_disagreement=0.01))

        clients = [threading.Thread(target=load) for _ in range(6)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        slid = [answer for answer in answers if answer.policy.kind == "slid"]
        assert slid
        assert {answer.policy.name for answer in slid} == {"quick"}
        assert all(answer.policy.guarantees for answer in slid)
        # Those that insisted kept what they asked for.
        assert {answer.policy.name for answer in insisting} == {"careful"}
        assert running.metric(names.SLID_REQUESTS) == len(slid)
        time.sleep(5)
        assert _answer(running).policy.kind == "default"
        assert running.metric(names.REQUESTS_FINISHED, outcome="rejected") == 0
