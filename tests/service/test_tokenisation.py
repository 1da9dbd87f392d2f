"""Texts become tokens in order, in place or in a thread, and refusals name their place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from multi_exit.bundle import Bundle
from multi_exit.errors import EmptyText, InvalidText, TextTooLong
from multi_exit.text_encoder import TextInput
from service import metric_names as names
from service.errors import Overloaded, TextRefused
from service.metrics import Metrics
from service.tokenisation import Input, Tokenisation


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry(), layers=4, stages=3)


@pytest.fixture
def tokenisation(tiny_bundle: Bundle, metrics: Metrics) -> Iterator[Tokenisation]:
    made = Tokenisation(tiny_bundle.text_encoder(), max_characters=30_000, metrics=metrics)
    yield made
    made.close()


def _inputs(*texts: str) -> list[Input]:
    return [
        Input(text=TextInput(text), where=f"inputs[{index}]") for index, text in enumerate(texts)
    ]


def test_long_requests_in_a_thread_give_the_same_tokens(
    tokenisation: Tokenisation, metrics: Metrics
) -> None:
    async def both() -> None:
        short = await tokenisation.encode(_inputs("w1 w2", "w3"), refuse_cut=False)
        long = await tokenisation.encode(_inputs("w1 w2", "w3", "w4 " * 5_000), refuse_cut=False)
        assert [text.token_ids.tolist() for text in long[:2]] == [
            text.token_ids.tolist() for text in short
        ]
        assert [text.truncated for text in long] == [False, False, True]

    asyncio.run(both())
    assert metrics.registry.get_sample_value(names.TRUNCATED) == 1
    assert metrics.registry.get_sample_value(f"{names.TOKENISE_SECONDS}_count") == 2


@pytest.mark.parametrize("padding", ["", "w1 " * 5_000], ids=["in place", "in a thread"])
@pytest.mark.parametrize(
    ("text", "kind"), [("\u200b \x00", EmptyText), ("a\ud83d", InvalidText), ("", EmptyText)]
)
def test_a_refused_text_names_its_index(
    tokenisation: Tokenisation, padding: str, text: str, kind: type[Exception]
) -> None:
    inputs = _inputs(f"w1 {padding}", text)
    with pytest.raises(TextRefused, match=r"^inputs\[1\]: ") as caught:
        asyncio.run(tokenisation.encode(inputs, refuse_cut=False))
    assert isinstance(caught.value.__cause__, kind)


def test_the_side_of_a_pair_is_named(tokenisation: Tokenisation) -> None:
    item = Input(text=TextInput("w1", " "), where="inputs")
    with pytest.raises(TextRefused, match=r"^inputs\.text_pair: "):
        asyncio.run(tokenisation.encode([item], refuse_cut=False))


def test_cutting_can_be_refused_and_the_limit_is_told(tokenisation: Tokenisation) -> None:
    with pytest.raises(TextRefused) as caught:
        asyncio.run(tokenisation.encode(_inputs("w1 " * 40), refuse_cut=True))
    assert isinstance(caught.value.__cause__, TextTooLong)
    assert caught.value.members == {"field": "inputs[0]", "limit": 32}


def test_too_many_characters_at_once_are_refused_and_room_comes_back(
    tokenisation: Tokenisation,
) -> None:
    long = "w1 " * 6_000

    async def run() -> None:
        results = await asyncio.gather(
            *(tokenisation.encode(_inputs(long), refuse_cut=False) for _ in range(3)),
            return_exceptions=True,
        )
        assert [isinstance(result, Overloaded) for result in results] == [False, True, True]
        await tokenisation.encode(_inputs(long), refuse_cut=False)

    asyncio.run(run())
