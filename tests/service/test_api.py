"""The routes over a real port: right answers, and a clear 4xx for everything that is wrong."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any

import httpx
import pytest

from multi_exit.bundle import Bundle
from service import metric_names as names
from service.schemas import ClassifyAnswer

JSON = {"Content-Type": "application/json"}
REQUESTS_FINISHED = names.REQUESTS_FINISHED


def _post(running: Any, body: bytes | str, **headers: str) -> httpx.Response:
    return httpx.post(
        f"{running.url}/classify", content=body, headers={**JSON, **headers}, timeout=30
    )


def _problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["status"] == status
    assert {"type", "title", "detail"} <= set(document)
    return document


def test_one_text_is_answered_as_documented(tiny: Any) -> None:
    response = tiny.post(inputs="w1 w2", threshold=0.2, top_k=2, explain=True)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    document = ClassifyAnswer.model_validate(response.json(), strict=True, extra="forbid")
    (result,) = document.results
    assert result.exit_layer in (1, 2, 4)
    assert [exit_.exit_layer for exit_ in result.explain or ()][-1] == result.exit_layer
    assert len(result.top_k or ()) == 2
    assert document.policy.model_dump(exclude_none=True) == {
        "kind": "threshold",
        "thresholds": [0.2, 0.2, 0.2],
    }


def test_answers_come_in_the_order_of_the_inputs_and_vary_in_exit(tiny: Any) -> None:
    texts = [f"w{number} w{number + 3}" for number in range(40)]
    together = tiny.post(inputs=texts, threshold=0.2).json()["results"]
    alone = [tiny.post(inputs=text, threshold=0.2).json()["results"][0] for text in texts]
    for ours, theirs in zip(together, alone, strict=True):
        for key in ("label", "score", "exit_layer", "entropy"):
            assert ours[key] == theirs[key]
    assert {result["exit_layer"] for result in together} == {1, 2, 4}


def test_a_higher_threshold_leaves_earlier_and_zero_is_full_depth(tiny: Any) -> None:
    texts = [f"w{number} w{number + 3}" for number in range(40)]

    def average(**knobs: Any) -> float:
        results = tiny.post(inputs=texts, **knobs).json()["results"]
        return sum(result["exit_layer"] for result in results) / len(results)

    assert average(threshold=0) == 4
    assert average() == 4  # this bundle has no default point
    assert average(threshold=1) < average(threshold=0.3) < average(threshold=0.05) < 4
    assert average(threshold=0, max_layer=3) == 2  # the deepest exit at or above layer 3


def test_pairs_are_objects_and_say_which_side_was_cut(tiny: Any) -> None:
    long = "w1 " * 100
    results = tiny.post(
        inputs=[
            {"text": "w1", "text_pair": "w2"},
            {"text": "w1", "text_pair": long},
            {"text": "w1"},
        ]
    ).json()["results"]
    assert [(r["truncated"], r.get("truncated_pair")) for r in results] == [
        (False, False),
        (False, True),
        (False, None),
    ]


def test_a_pair_cannot_be_faked_by_writing_a_separator(tiny: Any) -> None:
    pair = tiny.post(inputs={"text": "w1", "text_pair": "w2"}).json()["results"][0]
    fake = tiny.post(inputs="w1 [SEP] w2").json()["results"][0]
    assert pair["score"] != fake["score"]


def test_a_long_text_is_cut_and_says_so_or_is_refused_as_the_request_wants(tiny: Any) -> None:
    before = tiny.metric(names.TRUNCATED)
    text = ("w1 " * 33_334)[:100_000]
    (result,) = tiny.post(inputs=text).json()["results"]
    assert result["truncated"] is True
    assert tiny.metric(names.TRUNCATED) == before + 1
    problem = _problem(tiny.post(inputs=["w1", text], truncation="refuse"), 422)
    assert (problem["field"], problem["limit"]) == ("inputs[1]", 32)


def test_129_texts_are_split_inside_whatever_a_batch_holds(tiny: Any) -> None:
    assert len(tiny.post(inputs=["w1"] * 129).json()["results"]) == 129


@pytest.mark.parametrize(
    "text", ["", "   ", "\u0000", "\u200b", "\ufffd", "\u0000\u200b \n"], ids=ascii
)
def test_a_text_of_which_nothing_is_left_is_refused_by_one_rule(tiny: Any, text: str) -> None:
    assert _problem(tiny.post(inputs=text), 422)["field"] == "inputs"
    problem = _problem(tiny.post(inputs=["w1", text]), 422)
    assert problem["field"] == "inputs[1]"
    assert problem["type"].endswith(":empty_text")


def test_null_bytes_within_a_text_do_no_harm(tiny: Any) -> None:
    assert tiny.post(inputs="w1\u0000 w2").status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ('{"inputs": "a"', 400, None),
        ("", 400, None),
        ("[" * 100_000, 400, None),
        ('{"inputs": "w1", "threshold": NaN}', 422, "threshold"),
        ('{"inputs": "w1", "threshold": 1e999}', 422, "threshold"),
        ('{"inputs": "w1", "threshold": -Infinity}', 422, "threshold"),
        ('{"inputs": "\\ud83d"}', 422, "inputs"),
        ('{"inputs": ["w1", "\\udead"]}', 422, "inputs[1]"),
        ('{"inputs": {"text": "w1", "text_pair": "\\ud83d"}}', 422, "inputs.text_pair"),
        ('{"inputs": "w1", "thresold": 0.5}', 422, "thresold"),
        ('{"inputs": "w1", "threshold": "0.3"}', 422, "threshold"),
        ('{"inputs": "w1", "threshold": true}', 422, "threshold"),
        ('{"inputs": [["w1", "w2"]]}', 422, "inputs[0]"),
    ],
)
def test_a_wrong_body_gets_its_own_clear_answer(
    tiny: Any, body: str, status: int, field: str | None
) -> None:
    assert _problem(_post(tiny, body), status).get("field") == field


def test_errors_never_echo_what_was_sent(tiny: Any) -> None:
    secret = "d0ntrepeatme"
    for body in (
        f'{{"inputs": "{secret}", "threshold": "{secret}"}}',
        f'{{"inputs": "{secret}\\ud83d"}}',
        f'{{"inputs": "{secret}"',
        f'{{"inputs": ["{secret}", ""]}}',
        f'{{"inputs": {{"text": "{secret}", "text_pair": 3}}}}',
        f'{{"inputs": "{secret}", "truncation": "{secret}"}}',
    ):
        response = _post(tiny, body)
        assert 400 <= response.status_code < 500
        assert secret not in response.text


def test_a_limit_names_itself_its_value_what_came_and_its_setting(tiny: Any) -> None:
    problem = _problem(tiny.post(inputs=["w1"] * 10_000), 422)
    assert {key: problem[key] for key in ("field", "limit", "received", "setting")} == {
        "field": "inputs",
        "limit": 200,
        "received": 10_000,
        "setting": "max_texts",
    }
    problem = _problem(tiny.post(inputs="w1", top_k=6), 422)
    assert (problem["limit"], problem["setting"]) == (5, "max_top_k")
    limits = httpx.get(f"{tiny.url}/model").json()["limits"]
    assert (limits["max_texts"], limits["max_top_k"]) == (200, 5)


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": ""},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
    ids=str,
)
def test_what_is_not_declared_as_plain_json_is_refused(tiny: Any, headers: dict[str, str]) -> None:
    _problem(_post(tiny, '{"inputs": "w1"}', **headers), 415)


def test_a_charset_of_utf_8_is_json_too(tiny: Any) -> None:
    response = _post(
        tiny, '{"inputs": "w1"}', **{"Content-Type": 'Application/JSON; charset="UTF-8"'}
    )
    assert response.status_code == 200


@pytest.mark.parametrize("path", ["/", "/nope", "/classify/", "/redoc", "/v1/classify"])
def test_an_unknown_address_is_a_problem_document(tiny: Any, path: str) -> None:
    _problem(httpx.get(f"{tiny.url}{path}"), 404)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/classify", "POST"), ("DELETE", "/classify", "POST"), ("POST", "/model", "GET")],
)
def test_a_wrong_method_says_which_are_allowed(
    tiny: Any, method: str, path: str, allowed: str
) -> None:
    response = httpx.request(method, f"{tiny.url}{path}")
    _problem(response, 405)
    assert response.headers["allow"] == allowed


def test_the_model_describes_itself(tiny: Any, tiny_bundle: Bundle) -> None:
    model = httpx.get(f"{tiny.url}/model").json()
    manifest = tiny_bundle.manifest
    assert model["bundle"] == tiny_bundle.identifier
    assert tuple(model["labels"]) == manifest.labels
    assert (tuple(model["exits"]), model["layers"]) == (manifest.exits, manifest.layers)
    assert (model["provider"], model["precision"]) == ("cpu", "fp32")
    assert tuple(model["length_buckets"]) == manifest.length_buckets
    (point,) = model["operating_points"]
    assert {"name", "thresholds", "average_layers", "speedup", "certificates"} <= set(point)


def test_one_broken_text_gets_an_error_and_its_neighbours_their_answers(tiny: Any) -> None:
    before = tiny.metric(names.NON_FINITE_ROWS)
    response = tiny.post(inputs=["w1 w2", "broken w1", "w3 w4"])
    assert response.status_code == 200
    results = response.json()["results"]
    assert [("label" in result, "error" in result) for result in results] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert results[1]["error"]["type"] == "urn:patamar:problem:not_finite"
    assert tiny.metric(names.NON_FINITE_ROWS) == before + 1


def test_a_request_of_which_nothing_can_be_answered_is_a_500_that_says_why(tiny: Any) -> None:
    failed = tiny.metric(REQUESTS_FINISHED, outcome="failed")
    assert _problem(tiny.post(inputs="broken"), 500)["type"].endswith(":not_finite")
    assert _problem(tiny.post(inputs="explode"), 500)["type"].endswith(":stage_failed")
    assert tiny.metric(REQUESTS_FINISHED, outcome="failed") == failed + 2
    assert tiny.post(inputs="w1").status_code == 200


def test_a_vanished_client_frees_its_rows(slow_bundle: Bundle, serve: Any, eventually: Any) -> None:
    with serve(slow_bundle) as running:
        body = json.dumps({"inputs": [f"w{number}" for number in range(50)]}).encode()
        address = running.url.removeprefix("http://").split(":")
        with socket.create_connection((address[0], int(address[1]))) as client:
            client.sendall(
                b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            eventually(lambda: running.metric(names.WAITING_TOKENS) > 0)
        eventually(lambda: running.metric(names.WAITING_TOKENS) == 0, seconds=3)
        eventually(lambda: running.metric(REQUESTS_FINISHED, outcome="cancelled") == 1)
        assert running.metric(f"{names.ANSWER_EXIT_LAYER}_count") == 0
        text = httpx.get(f"{running.url}/metrics").text
        assert 'status="499"' not in text, "nobody got a response"
        assert running.post(inputs="w1").status_code == 200


def test_a_request_that_takes_too_long_is_a_504_and_frees_its_rows(
    slow_bundle: Bundle, serve: Any, eventually: Any
) -> None:
    with serve(slow_bundle, request_timeout_seconds=0.1) as running:
        started = time.monotonic()
        _problem(running.post(inputs="w1"), 504)
        assert time.monotonic() - started < 5
        eventually(lambda: running.metric(names.WAITING_TOKENS) == 0)
        assert running.metric(REQUESTS_FINISHED, outcome="failed") == 1


def test_overload_is_429_at_once_with_retry_after_and_loses_nothing_accepted(
    slow_bundle: Bundle, serve: Any, eventually: Any
) -> None:
    with serve(slow_bundle, max_waiting_tokens=64) as running:
        accepted: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: accepted.append(running.post(inputs=["w1"] * 16)))
        thread.start()
        eventually(lambda: running.metric(names.WAITING_TOKENS) == 64)
        started = time.monotonic()
        for inputs in ("w1", ["w1"]):  # one rule for a text and for a list of one
            response = running.post(inputs=inputs)
            _problem(response, 429)
            assert int(response.headers["retry-after"]) >= 1
        assert time.monotonic() - started < 1
        thread.join()
        assert accepted[0].status_code == 200
        assert len(accepted[0].json()["results"]) == 16
        assert running.metric(names.REJECTED, reason="overloaded") == 2


def test_a_body_that_never_comes_is_a_408_and_not_a_hung_connection(
    tiny_bundle: Bundle, serve: Any
) -> None:
    with serve(tiny_bundle, body_timeout_seconds=0.2) as running:
        address = running.url.removeprefix("http://").split(":")
        with socket.create_connection((address[0], int(address[1])), timeout=5) as client:
            client.sendall(
                b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b'Content-Length: 100\r\n\r\n{"inputs": '
            )
            assert client.recv(100).startswith(b"HTTP/1.1 408 ")
