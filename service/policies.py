"""Decides which policy a request gets, and how the answer names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from multi_exit.bundle import BundleManifest
from multi_exit.errors import ConfigurationError
from multi_exit.policy import Policy, exit_within
from service.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPolicy:
    """A policy and what the answer says of it. document: the member `policy` of an answer."""

    policy: Policy
    document: dict[str, Any]


class Policies:
    """The policies of one bundle under one operator's settings.

    Raises ConfigurationError where `default_point` is not a point of the bundle, or where both
    defaults are set.
    """

    def __init__(
        self,
        manifest: BundleManifest,
        *,
        default_threshold: float | None,
        default_point: str | None,
    ) -> None:
        self._exits = manifest.exits
        self.default = self._default(manifest, default_threshold, default_point)

    def resolve(self, threshold: float | None, max_layer: int | None) -> ResolvedPolicy:
        """The request's policy: its own threshold or the default's, never deeper than max_layer.

        Raises InvalidRequest for a max_layer before the first exit.
        """
        resolved = self.default
        if threshold is not None:
            resolved = _resolved("threshold", Policy.constant(threshold, len(self._exits)))
        if max_layer is None:
            return resolved
        last_exit = exit_within(self._exits, max_layer)
        if last_exit is None:
            raise InvalidRequest(
                f"max_layer: the first exit comes after layer {self._exits[0]}; allow at least it.",
                members={"field": "max_layer", "limit": self._exits[0], "received": max_layer},
            )
        return ResolvedPolicy(
            policy=resolved.policy.capped(last_exit),
            document={**resolved.document, "max_layer": max_layer},
        )

    def _default(
        self, manifest: BundleManifest, threshold: float | None, point: str | None
    ) -> ResolvedPolicy:
        if threshold is not None and point is not None:
            raise ConfigurationError("set default_threshold or default_point, not both")
        if threshold is not None:
            return _resolved("default", Policy.constant(threshold, len(self._exits)))
        name = point if point is not None else manifest.default_point
        if name is None:
            return _resolved("default", Policy.constant(0.0, len(self._exits)))
        names = [known.name for known in manifest.operating_points]
        if name not in names:
            raise ConfigurationError(
                f"default_point {name!r} is not an operating point of this bundle; it has "
                f"{', '.join(names) or 'none'}"
            )
        return _resolved("default", manifest.point(name).policy, name=name)


def _resolved(kind: str, policy: Policy, **more: str) -> ResolvedPolicy:
    return ResolvedPolicy(
        policy=policy, document={"kind": kind, **more, "thresholds": list(policy.thresholds)}
    )
