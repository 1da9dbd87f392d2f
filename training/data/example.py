"""One labelled text, as every reader returns it."""

from __future__ import annotations

from dataclasses import dataclass

from multi_exit.text_encoder import TextInput


@dataclass(frozen=True, slots=True)
class LabelledExample:
    """A text, or a pair, and the name of its label."""

    text: str
    label: str
    text_pair: str | None = None

    @property
    def text_input(self) -> TextInput:
        return TextInput(self.text, self.text_pair)
