"""What is asked in a measurement: texts, the policy they are answered under, and request bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from bench.serving.http_client import post_request
from multi_exit.bundle import BundleManifest
from multi_exit.errors import ConfigurationError
from multi_exit.policy import Policy

PATH = "/classify"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """A policy by name, and the threshold that a request names to get it; None: the default."""

    name: str
    policy: Policy
    threshold: float | None

    def body(self, inputs: str | Sequence[str]) -> bytes:
        """The JSON body that asks for one text, or for several at once."""
        knobs = {} if self.threshold is None else {"threshold": self.threshold}
        return json.dumps({"inputs": inputs, **knobs}).encode()

    def request(self, inputs: str | Sequence[str]) -> bytes:
        """All bytes of such a request."""
        return post_request(PATH, self.body(inputs))


def full_depth(manifest: BundleManifest) -> Answering:
    """Every text through all layers."""
    policy = Policy.constant(0.0, len(manifest.exits))
    return Answering(name="full depth", policy=policy, threshold=0.0)


def early_exit(manifest: BundleManifest, threshold: float | None) -> Answering:
    """One threshold for every exit, or without it the bundle's default point.

    Raises ConfigurationError for a bundle without one.
    """
    if threshold is not None:
        policy = Policy.constant(threshold, len(manifest.exits))
        return Answering(name=f"threshold {threshold:g}", policy=policy, threshold=threshold)
    if manifest.default_point is None:
        raise ConfigurationError(
            f"bundle {manifest.name!r} has no default operating point; give --threshold"
        )
    point = manifest.point(manifest.default_point)
    return Answering(name=point.name, policy=point.policy, threshold=None)


def draw(things: Sequence[T], count: int, rng: np.random.Generator) -> list[T]:
    """`count` of them by chance: none a second time before each had its turn.

    Raises ValueError where there is nothing to draw from.
    """
    if not things:
        raise ValueError("there is nothing to draw from")
    order: list[int] = []
    while len(order) < count:
        order += rng.permutation(len(things)).tolist()
    return [things[index] for index in order[:count]]


def lengthened(texts: Sequence[str], times: int, rng: np.random.Generator) -> str:
    """A text `times` times longer than usual: so many real ones in a row."""
    return " ".join(draw(texts, times, rng))
