"""Under mixed load: answers bit for bit those of the same texts alone, and sums that add up."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx

from multi_exit.bundle import Bundle
from service import metric_names as names

WORDS = [f"w{number}" for number in range(60)]
THRESHOLDS = (0.0, 0.05, 0.2, 0.5)
KEYS = ("label", "score", "exit_layer", "entropy", "truncated", "top_k", "explain")


def _requests(count: int) -> list[dict[str, Any]]:
    rng = random.Random(11)

    def text() -> str:
        return " ".join(rng.choices(WORDS, k=rng.choice((1, 2, 3, 5, 9, 20, 60))))

    made = []
    for _ in range(count):
        inputs: Any = text()
        if rng.random() < 0.3:
            inputs = [text() for _ in range(rng.randint(1, 30))]
        elif rng.random() < 0.2:
            inputs = {"text": text(), "text_pair": text()}
        made.append(
            {"inputs": inputs, "threshold": rng.choice(THRESHOLDS), "top_k": 3, "explain": True}
        )
    return made


def _essence(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [{key: result.get(key) for key in KEYS} for result in response.json()["results"]]


def test_answers_under_mixed_load_are_bit_identical_to_answers_alone(
    tiny_bundle: Bundle, serve: Any
) -> None:
    requests = _requests(300)

    async def together(url: str) -> list[list[dict[str, Any]]]:
        limits = httpx.Limits(max_connections=40)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:
            responses = await asyncio.gather(
                *(client.post("/classify", json=request) for request in requests)
            )
        return [_essence(response) for response in responses]

    with serve(tiny_bundle, max_batch_rows=8) as running:
        crowded = asyncio.run(together(running.url))
        rows_a_batch = running.metric(f"{names.STAGE_ROWS}_sum") / running.metric(
            f"{names.STAGE_ROWS}_count"
        )
        assert rows_a_batch > 1.5, "the load never shared a batch, so this shows nothing"
        with httpx.Client(base_url=running.url, timeout=60) as client:
            for request, answers in zip(requests, crowded, strict=True):
                inputs = request["inputs"]
                for text, answer in zip(
                    inputs if isinstance(inputs, list) else [inputs], answers, strict=True
                ):
                    alone = client.post("/classify", json={**request, "inputs": text})
                    assert _essence(alone) == [answer]


def test_counters_add_up_with_every_outcome_at_once(
    slow_bundle: Bundle, serve: Any, eventually: Any
) -> None:
    bodies = [
        *({"inputs": [f"w{n}", "w2 w3 w4"]} for n in range(5)),  # these clients give up
        *({"inputs": ["w1"] * 60} for _ in range(3)),  # one of these finds no room
        *({"inputs": f"w{n}", "threshold": 0.5} for n in range(15)),
        *({"inputs": ""} for _ in range(4)),
        *({"inputs": "broken"} for _ in range(2)),
    ]

    async def load(running: Any) -> None:
        async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
            asking = [asyncio.create_task(client.post("/classify", json=body)) for body in bodies]
            async with asyncio.timeout(20):
                while running.metric(names.REQUESTS_RECEIVED) < len(bodies):  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            for task in asking[:5]:
                task.cancel()
            await asyncio.wait(asking)

    with serve(slow_bundle, max_waiting_tokens=500, max_wait_seconds=600) as running:
        asyncio.run(load(running))
        count = running.metric
        outcomes = ("answered", "failed", "cancelled", "rejected")

        def finished() -> dict[str, float]:
            return {name: count(names.REQUESTS_FINISHED, outcome=name) for name in outcomes}

        eventually(lambda: sum(finished().values()) == len(bodies))
        assert count(names.REQUESTS_RECEIVED) == len(bodies)
        assert min(finished().values()) > 0, finished()
        assert finished()["rejected"] == sum(
            count(names.REJECTED, reason=reason) for reason in ("empty_text", "overloaded")
        )
        answers = count(f"{names.ANSWER_EXIT_LAYER}_count")
        assert answers * 4 == count(names.LAYERS_RUN) + count(names.LAYERS_SAVED)
        eventually(lambda: count(names.WAITING_TOKENS) == 0)
        assert sum(count(names.ROWS_IN_FLIGHT, stage=stage) for stage in "123") == 0
        engine = running.served.readiness.engine
        eventually(lambda: not engine._worker._rows)
