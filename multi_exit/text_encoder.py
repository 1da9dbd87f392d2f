"""Text to token ids, the same way in training, export and service.

One Unicode form, one rule for emptiness, one way of cutting; user text never becomes control
tokens. The encoder is configured once and never changed, so threads may share it.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

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
        self._frame = _learn_frame(tokenizer, pair=False)
        self._frame_pair = _learn_frame(tokenizer, pair=True)
        self._control = _control_tokens(tokenizer, (*self._frame, *self._frame_pair))
        self._room = max_length - _control_count(self._frame)
        self._room_pair = max_length - _control_count(self._frame_pair)
        self.max_length = max_length
        self.pad_token_id = pad_token_id
        self.unicode_form: UnicodeForm = unicode_form
        if self._room_pair < 2:
            raise ConfigurationError(
                f"max_length {max_length} leaves no room for text beside the tokenizer's "
                f"{_control_count(self._frame_pair)} control tokens; raise it"
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
            kept = first[: self._room]
            return _join(self._frame, (kept,), truncated=len(kept) < len(first))
        second = self._encode_side(text.text_pair, "text_pair")
        first_room, second_room = _shared_room(len(first), len(second), self._room_pair)
        return _join(
            self._frame_pair,
            (first[:first_room], second[:second_room]),
            truncated=first_room < len(first),
            truncated_pair=second_room < len(second),
        )

    def _encode_side(self, text: str, side: str) -> list[int]:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidText(
                f"{side} holds a lone surrogate at character {error.start}; send valid Unicode",
                side=side,
            ) from None
        if self.unicode_form != "none":
            text = unicodedata.normalize(self.unicode_form, text)
        token_ids = self._tokenize(text, side)
        # Byte-level vocabularies give tokens even to blanks, so the visible characters are
        # asked as well: one rule for every family.
        if not token_ids or not any(map(_is_visible, text)):
            raise EmptyText(f"{side} is empty once normalised; send some text", side=side)
        return token_ids

    def _tokenize(self, text: str, side: str) -> list[int]:
        # Some vocabularies (Unigram, BPE that ignores merges) hold "</s>" as a piece like any
        # other, which encode_special_tokens does not keep from matching: spaces take it apart.
        for _ in range(2):
            # A batch of one: unlike encode, it lets other threads run meanwhile, and a text of
            # 100,000 characters takes some 20 ms.
            (encoding,) = self._tokenizer.encode_batch([text], add_special_tokens=False)
            token_ids: list[int] = encoding.ids
            if self._control.isdisjoint(token_ids):
                return token_ids
            pieces = list(zip(token_ids, encoding.offsets, strict=True))
            for token_id, (start, end) in reversed(pieces):
                if token_id in self._control:
                    text = text[:start] + " ".join(text[start:end]) + text[end:]
        raise InvalidText(f"{side} holds a control token of the model; leave it out", side=side)


@dataclass(frozen=True, slots=True)
class _Slot:
    """One place of a tokenizer's template: a side of the input (0 or 1) or a control token."""

    side: int | None
    token_id: int
    type_id: int


def _learn_frame(tokenizer: Tokenizer, *, pair: bool) -> tuple[_Slot, ...]:
    """Where the tokenizer's post-processor puts its control tokens.

    Learnt once: applied to a text that was cut, it also works through every combination of what
    was cut off, 18 seconds for a pair of 10,000 tokens each.
    """
    text, tokens = _any_text(tokenizer)
    joined = tokenizer.encode(text, text if pair else None)
    content = [place for place, control in enumerate(joined.special_tokens_mask) if not control]
    # A side stands where its first token does, the text before its pair.
    sides = {place: side for side, place in enumerate(content[::tokens])}
    return tuple(
        _Slot(sides.get(place), joined.ids[place], joined.type_ids[place])
        for place in range(len(joined))
        if place in sides or place not in content
    )


def _any_text(tokenizer: Tokenizer) -> tuple[str, int]:
    """Some text that gives tokens, and how many. Raises ConfigurationError where none does."""
    for text in ("a", *tokenizer.get_vocab(with_added_tokens=False)):
        tokens = len(tokenizer.encode(text, add_special_tokens=False))
        if tokens > 0:
            return text, tokens
    raise ConfigurationError("the tokenizer makes no token of any text: its vocabulary is empty")


def _control_tokens(tokenizer: Tokenizer, slots: Sequence[_Slot]) -> frozenset[int]:
    """Ids that no user text may give: the special tokens but the one for unknown pieces."""
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    special |= {slot.token_id for slot in slots if slot.side is None}
    model = json.loads(tokenizer.to_str())["model"]
    unknown = model.get("unk_id")
    if unknown is None and model.get("unk_token") is not None:
        unknown = tokenizer.token_to_id(model["unk_token"])
    return frozenset(special - {unknown})


def _control_count(frame: Sequence[_Slot]) -> int:
    return sum(slot.side is None for slot in frame)


def _join(
    frame: Sequence[_Slot],
    sides: Sequence[list[int]],
    *,
    truncated: bool,
    truncated_pair: bool = False,
) -> EncodedText:
    parts = [[slot.token_id] if slot.side is None else sides[slot.side] for slot in frame]
    types = [slot.type_id for slot in frame]
    return EncodedText(
        token_ids=np.concatenate([np.asarray(part, dtype=np.int64) for part in parts]),
        type_ids=np.repeat(np.asarray(types, dtype=np.int64), [len(part) for part in parts]),
        truncated=truncated,
        truncated_pair=truncated_pair,
    )


def _is_visible(character: str) -> bool:
    return character != "\ufffd" and unicodedata.category(character) not in _INVISIBLE_CATEGORIES


def _shared_room(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens each side of a pair keeps: the longer side is cut until both fit."""
    if first + second <= room:
        return first, second
    half = room // 2
    if first <= half:
        return first, room - first
    if second <= half:
        return room - second, second
    # As the library's longest_first: an odd token goes to the longer side, the second if equal.
    return (room - half, half) if first > second else (half, room - half)
