"""One of the servers that are compared: where it is asked, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """url: asked by POST, with the JSON body that `body` makes of a text."""

    name: str
    url: str
    body: Callable[[str], bytes]
