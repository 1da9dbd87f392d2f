"""One labelled text, as every reader returns it."""

from __future__ import annotations

from dataclasses import dataclass, field

from multi_exit.text_encoder import TextInput


@dataclass(frozen=True, slots=True)
class LabelledExample:
    """A text, or a pair, and the name of its label. origin: file and row, for error messages."""

    text: str
    label: str
    text_pair: str | None = None
    origin: str = field(default="", compare=False, repr=False)

    @property
    def text_input(self) -> TextInput:
        return TextInput(self.text, self.text_pair)
