"""Text to token ids, the same way in training, export and service.

One Unicode form, one rule for emptiness, one way of cutting; user text never becomes control
tokens. The encoder is configured once and never changed, so threads may share it.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from multi_exit.errors import ConfigurationError, EmptyText, InvalidText

UnicodeForm = Literal["NFC", "NFKC", "none"]

# Nothing a reader would see: controls, format characters, surrogates, and the replacement sign.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"})
_PAD_TOKENS = ("[PAD]", "<pad>")


@dataclass(frozen=True, slots=True)
class TextInput:
    """One input: a text, or a pair of texts that are judged together."""

    text: str
    text_pair: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EncodedText:
    """Token ids of one input, with its control tokens. token_ids, type_ids: int64 [tokens]."""

    token_ids: NDArray[np.int64]
    type_ids: NDArray[np.int64]
    truncated: bool
    truncated_pair: bool

    def __len__(self) -> int:
        return len(self.token_ids)


class TextEncoder:
    """Wraps a `tokenizers` tokenizer. Make it with `from_file`."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        max_length: int,
        pad_token_id: int,
        unicode_form: UnicodeForm = "NFC",
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # Without this "awful [SEP] great" makes a real separator and fakes a pair.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._special_tokens = tokenizer.num_special_tokens_to_add(False)
        self._special_tokens_pair = tokenizer.num_special_tokens_to_add(True)
        self.max_length = max_length
        self.pad_token_id = pad_token_id
        self.unicode_form: UnicodeForm = unicode_form
        if max_length <= self._special_tokens_pair + 1:
            raise ConfigurationError(
                f"max_length {max_length} leaves no room for text beside the tokenizer's "
                f"{self._special_tokens_pair} control tokens; raise it"
            )

    @classmethod
    def from_file(
        cls,
        tokenizer_json: Path,
        *,
        max_length: int,
        unicode_form: UnicodeForm = "NFC",
        pad_token_id: int | None = None,
    ) -> TextEncoder:
        """Reads a `tokenizer.json`. Raises ConfigurationError where it is missing or damaged."""
        try:
            tokenizer = Tokenizer.from_file(str(tokenizer_json))
        except Exception as error:
            # The library raises bare Exception for a missing and for a damaged file alike.
            raise ConfigurationError(
                f"cannot read the tokenizer {tokenizer_json}: {error}"
            ) from error
        if pad_token_id is None:
            found = (tokenizer.token_to_id(token) for token in _PAD_TOKENS)
            pad_token_id = next((token_id for token_id in found if token_id is not None), None)
        if pad_token_id is None:
            raise ConfigurationError(
                f"{tokenizer_json} has none of the padding tokens {_PAD_TOKENS}; name its id"
            )
        return cls(
            tokenizer, max_length=max_length, pad_token_id=pad_token_id, unicode_form=unicode_form
        )

    def encode(self, text: TextInput) -> EncodedText:
        """Encodes one input, cut to `max_length` tokens from the end, the longer side first.

        Raises InvalidText for a lone surrogate and EmptyText where nothing visible is left, each
        naming the side.
        """
        first = self._encode_side(text.text, "text")
        if text.text_pair is None:
            room = self.max_length - self._special_tokens
            truncated = _cut(first, room)
            return self._join(first, None, truncated, truncated_pair=False)
        second = self._encode_side(text.text_pair, "text_pair")
        room = self.max_length - self._special_tokens_pair
        first_room, second_room = _shared_room(len(first), len(second), room)
        return self._join(
            first,
            second,
            truncated=_cut(first, first_room),
            truncated_pair=_cut(second, second_room),
        )

    def _encode_side(self, text: str, side: str) -> Encoding:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidText(
                f"{side} holds a lone surrogate at character {error.start}; send valid Unicode",
                side=side,
            ) from None
        if self.unicode_form != "none":
            text = unicodedata.normalize(self.unicode_form, text)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        # Byte-level vocabularies give tokens even to blanks, so the visible characters are
        # asked as well: one rule for every family.
        if len(encoding) == 0 or not any(map(_is_visible, text)):
            raise EmptyText(f"{side} is empty once normalised; send some text", side=side)
        return encoding

    def _join(
        self, first: Encoding, second: Encoding | None, truncated: bool, truncated_pair: bool
    ) -> EncodedText:
        joined = self._tokenizer.post_process(first, second, True)
        return EncodedText(
            token_ids=np.asarray(joined.ids, dtype=np.int64),
            type_ids=np.asarray(joined.type_ids, dtype=np.int64),
            truncated=truncated,
            truncated_pair=truncated_pair,
        )


def _is_visible(character: str) -> bool:
    return character != "\ufffd" and unicodedata.category(character) not in _INVISIBLE_CATEGORIES


def _cut(encoding: Encoding, room: int) -> bool:
    if len(encoding) <= room:
        return False
    encoding.truncate(room)
    return True


def _shared_room(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens each side of a pair keeps: the longer side is cut until both fit."""
    if first + second <= room:
        return first, second
    half = room // 2
    if first <= half:
        return first, room - first
    if second <= half:
        return room - second, second
    return room - half, half
