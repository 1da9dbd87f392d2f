"""Turns the texts of a request into tokens, without holding up the event loop.

Owner: the event loop. Short requests are encoded in place, since a thread's round trip costs more
than they do; long ones go to a small thread pool. The encoder is never changed, so threads share
it. Bounded: beyond a number of characters waiting, requests are refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from multi_exit.errors import TextError, TextTooLong
from multi_exit.text_encoder import EncodedText, TextEncoder, TextInput
from service.errors import Member, Overloaded, TextRefused
from service.metrics import Metrics

# About half a millisecond of work for a WordPiece tokenizer.
_INLINE_CHARACTERS = 2_000
_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input of a request and where it stands in it, for error messages: "inputs[3]"."""

    text: TextInput
    where: str

    @property
    def characters(self) -> int:
        return len(self.text.text) + len(self.text.text_pair or "")


class Tokenisation:
    """The encoder of one bundle, and the threads that may use it."""

    def __init__(self, encoder: TextEncoder, *, max_characters: int, metrics: Metrics) -> None:
        self._encoder = encoder
        self._max_characters = max_characters
        self._metrics = metrics
        self._characters = 0
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="patamar-tokenise")

    async def encode(self, inputs: Sequence[Input], *, refuse_cut: bool) -> list[EncodedText]:
        """Encodes all inputs, in order.

        Raises TextRefused for the first that cannot be classified (or had to be cut where
        `refuse_cut`), and Overloaded where too many characters wait already.
        """
        started = time.perf_counter()
        characters = sum(item.characters for item in inputs)
        if characters <= _INLINE_CHARACTERS:
            encoded = self._encode(inputs, refuse_cut)
        else:
            encoded = await self._encode_in_thread(inputs, refuse_cut, characters)
        truncated = sum(text.truncated + text.truncated_pair for text in encoded)
        self._metrics.tokenised(time.perf_counter() - started, truncated)
        return encoded

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _encode_in_thread(
        self, inputs: Sequence[Input], refuse_cut: bool, characters: int
    ) -> list[EncodedText]:
        # A request that waits alone is taken whatever its size: the body limit bounds it.
        if self._characters and self._characters + characters > self._max_characters:
            raise Overloaded(
                retry_after_seconds=1,
                limit=self._max_characters,
                setting="max_tokenising_characters",
            )
        self._characters += characters
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._encode, inputs, refuse_cut
            )
        finally:
            self._characters -= characters

    def _encode(self, inputs: Sequence[Input], refuse_cut: bool) -> list[EncodedText]:
        return [self._encode_one(item, refuse_cut) for item in inputs]

    def _encode_one(self, item: Input, refuse_cut: bool) -> EncodedText:
        limit = self._encoder.max_length
        members: dict[str, Member] = {}
        try:
            encoded = self._encoder.encode(item.text)
            if refuse_cut and (encoded.truncated or encoded.truncated_pair):
                members = {"limit": limit}
                raise TextTooLong(
                    f"longer than the model's {limit} tokens, and the request refuses to have it "
                    'cut; shorten it or leave "truncation" out',
                    side="text" if encoded.truncated else "text_pair",
                )
        except TextError as error:
            where = item.where
            if item.text.text_pair is not None or error.side == "text_pair":
                where = f"{where}.{error.side}"
            raise TextRefused(error, where=where, members=members) from error
        return encoded
