"""Body limit, API key and accounts, as clients meet them."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from multi_exit.bundle import Bundle
from service import metric_names as names

TEN_MEGABYTES = 10 * 2**20


def test_a_body_of_10_mb_is_refused_and_the_client_reads_why(tiny: Any) -> None:
    body = b'{"inputs": "' + b"a" * TEN_MEGABYTES + b'"}'
    response = httpx.post(
        f"{tiny.url}/classify", content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 413
    problem = response.json()
    assert (problem["limit"], problem["received"]) == (200_000, len(body))
    assert problem["setting"] == "max_body_bytes"


def test_a_client_that_reads_only_when_it_has_sent_all_is_not_reset(tiny: Any) -> None:
    host, port = tiny.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        head = "POST /classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: 2000000\r\n\r\n".encode())
        for _ in range(20):
            time.sleep(0.01)
            client.sendall(b"a" * 100_000)
        assert client.recv(1_000).startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_without_a_length_is_refused_where_it_passes_the_limit(tiny: Any) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        yield b'{"inputs": "'
        for _ in range(160):
            sent += 1
            yield b"a" * 65_536

    response = httpx.post(
        f"{tiny.url}/classify", content=chunks(), headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 413
    assert "received" not in response.json()


def test_an_endless_body_is_answered_at_the_limit_and_then_cut_off(tiny: Any) -> None:
    host, port = tiny.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(
            b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + b"a" * 65_536 + b"\r\n"
        answer = b""
        client.settimeout(0.01)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):  # noqa: PT012 - both ends
            for _ in range(20_000):
                if not answer:
                    with contextlib.suppress(TimeoutError):
                        answer = client.recv(1_000)
                client.settimeout(10)
                client.sendall(chunk)
                client.settimeout(0.01)
        assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_body_just_within_the_limit_is_taken(tiny: Any) -> None:
    frame = '{"inputs": "w1 "}'
    body = frame.replace("w1 ", "w1 " + " " * (200_000 - len(frame)))
    assert len(body) == 200_000
    headers = {"Content-Type": "application/json"}
    assert httpx.post(f"{tiny.url}/classify", content=body, headers=headers).status_code == 200
    more = httpx.post(f"{tiny.url}/classify", content=body + " ", headers=headers)
    assert more.status_code == 413


def test_the_key_guards_what_costs_or_tells_and_never_the_probes(
    tiny_bundle: Bundle, serve: Any
) -> None:
    with serve(tiny_bundle, api_key="s3cret") as running:
        for path in ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"):
            assert httpx.get(f"{running.url}{path}").status_code == 200
        assert httpx.get(f"{running.url}/model").status_code == 401
        for value in (None, "s3cret", "Bearer wrong", "Bearer S3CRET", "Basic s3cret", "Bearer"):
            headers = {} if value is None else {"Authorization": value}
            response = httpx.post(f"{running.url}/classify", json={"inputs": "w1"}, headers=headers)
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.headers["content-type"] == "application/problem+json"
        for scheme in ("Bearer", "bearer"):
            response = httpx.post(
                f"{running.url}/classify",
                json={"inputs": "w1"},
                headers={"Authorization": f"{scheme} s3cret"},
            )
            assert response.status_code == 200
        assert running.metric(names.REJECTED, reason="unauthorised") == 6


def test_responses_are_counted_by_status_and_by_routes_that_exist(
    tiny_bundle: Bundle, serve: Any
) -> None:
    with serve(tiny_bundle) as running:
        for path in ("/secret/a", "/secret/b", "/healthz"):
            httpx.get(f"{running.url}{path}")
        running.post(inputs="w1")
        running.post(inputs="")
        httpx.get(f"{running.url}/classify")  # no request to classify: another method
        count = running.metric
        assert count(names.HTTP_RESPONSES, status="404", route="other") == 2
        assert count(names.HTTP_RESPONSES, status="200", route="/classify") == 1
        assert count(names.HTTP_RESPONSES, status="422", route="/classify") == 1
        assert count(names.REQUESTS_RECEIVED) == 2
        assert count(names.REQUESTS_FINISHED, outcome="answered") == 1
        assert count(names.REQUESTS_FINISHED, outcome="rejected") == 1
        assert count(names.REJECTED, reason="empty_text") == 1
        assert count(f"{names.REQUEST_SECONDS}_count") == 2


def test_keep_alive_connections_serve_on_after_an_error(tiny: Any) -> None:
    with httpx.Client(base_url=tiny.url) as client:
        for body, status in (("{", 400), (json.dumps({"inputs": "w1"}), 200)) * 3:
            headers = {"Content-Type": "application/json"}
            assert client.post("/classify", content=body, headers=headers).status_code == status


def test_under_overload_small_requests_are_refused_unread_and_the_connection_lives_on(
    slow_bundle: Bundle, serve: Any, eventually: Any
) -> None:
    with serve(slow_bundle, max_waiting_tokens=64, max_wait_seconds=600) as running:
        busy = threading.Thread(target=lambda: running.post(inputs=["w1"] * 16))
        busy.start()
        eventually(lambda: running.metric(names.WAITING_TOKENS) == 64)
        with httpx.Client(base_url=running.url, timeout=30) as client:
            for body in ({"inputs": "w1"}, {"inputs": ["w1"] * 3}):
                refused = client.post("/classify", json=body)
                assert refused.status_code == 429
                assert int(refused.headers["retry-after"]) >= 1
            # Not read: what is wrong with it is not known yet.
            assert client.post("/classify", content=b"{").status_code == 429
            assert client.get("/healthz").status_code == 200
            assert client.get("/classify").status_code == 405
            # A large body is read first; its own fault then counts.
            assert client.post("/classify", content=b"a" * 20_000).status_code == 415
            busy.join()
            eventually(lambda: running.metric(names.WAITING_TOKENS) == 0)
            assert client.post("/classify", json={"inputs": "w1"}).status_code == 200
        assert running.metric(names.REJECTED, reason="overloaded") == 3
