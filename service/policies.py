"""Decides which policy a request gets, and how the answer names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from multi_exit.bundle import BundleManifest, OperatingPoint
from multi_exit.contracts import (
    Knobs,
    UnreachableContract,
    guarantees,
    ladder,
    point_for,
)
from multi_exit.errors import ConfigurationError
from multi_exit.policy import Policy, exit_within
from service.errors import ContractRefused, InvalidRequest, Member


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPolicy:
    """A policy and what the answer says of it. document: the member `policy` of an answer."""

    policy: Policy
    document: dict[str, Any]

    @property
    def slid(self) -> bool:
        """Whether load chose it."""
        return bool(self.document["kind"] == "slid")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBounds:
    """The operator's choices; points by name.

    default_threshold or default_point: for requests that name nothing. fastest_point: no policy
    may leave earlier than this point at any exit. slide_to_point: how far requests that name
    nothing may slide under load.
    """

    default_threshold: float | None = None
    default_point: str | None = None
    fastest_point: str | None = None
    slide_to_point: str | None = None


class Policies:
    """The policies of one bundle under one operator's bounds.

    is_suspended: whether a point, by name, has lost its promise; it then runs full depth.
    Raises ConfigurationError where bounds name no point of the bundle or contradict each other.
    """

    def __init__(
        self,
        manifest: BundleManifest,
        bounds: PolicyBounds,
        *,
        is_suspended: Callable[[str], bool] = lambda point: False,
    ) -> None:
        self._manifest = manifest
        self._exits = manifest.exits
        self._full_depth = Policy.constant(0.0, len(manifest.exits))
        self._is_suspended = is_suspended
        self._bounds = bounds
        self._fastest = self._named(bounds.fastest_point, "fastest_point")
        self._points = [point for point in manifest.operating_points if self._allowed(point.policy)]
        self._default_point = self._find_default_point()
        self._default = self._find_default()
        self._ladder = self._find_ladder()

    @property
    def default(self) -> ResolvedPolicy:
        """For a request that names nothing."""
        return self._available(self._default)

    @property
    def steps(self) -> int:
        """How many steps a request that names nothing may slide; 0 where it may not."""
        return len(self._ladder)

    def resolve(self, knobs: Knobs, *, slide: int = 0) -> ResolvedPolicy:
        """The request's policy. slide: steps below the default for one that names nothing.

        Raises InvalidRequest for a max_layer before the first exit and for what the operator does
        not allow, ContractRefused for a contract that no allowed point keeps.
        """
        resolved = self._resolve(knobs, slide)
        return resolved if knobs.max_layer is None else self._capped(resolved, knobs.max_layer)

    def _resolve(self, knobs: Knobs, slide: int) -> ResolvedPolicy:
        if knobs.threshold is not None:
            policy = Policy.constant(knobs.threshold, len(self._exits))
            if not self._allowed(policy):
                raise self._too_fast("threshold", knobs.threshold)
            return _resolved("threshold", policy)
        contract = knobs.contract
        if contract is not None:
            name, asked = contract
            try:
                point = point_for(self._points, name, asked)
            except UnreachableContract as error:
                raise ContractRefused(error) from error
            return self._available(_of_point("operating_point", point, asked={name: asked}))
        if slide and self._ladder and knobs.max_layer is None:
            return self._available(self._ladder[min(slide, len(self._ladder)) - 1])
        return self.default

    def _available(self, resolved: ResolvedPolicy) -> ResolvedPolicy:
        """Full depth in place of a point that has lost its promise."""
        name = resolved.document.get("name")
        if name is None or not self._is_suspended(name):
            return resolved
        document = {k: v for k, v in resolved.document.items() if k != "guarantees"}
        document |= {"thresholds": list(self._full_depth.thresholds), "suspended": True}
        return ResolvedPolicy(policy=self._full_depth, document=document)

    def _capped(self, resolved: ResolvedPolicy, max_layer: int) -> ResolvedPolicy:
        last_exit = exit_within(self._exits, max_layer)
        if last_exit is None:
            raise InvalidRequest(
                f"max_layer: the first exit comes after layer {self._exits[0]}; allow at least it.",
                members={"field": "max_layer", "limit": self._exits[0], "received": max_layer},
            )
        document = {**resolved.document, "max_layer": max_layer}
        if last_exit == len(self._exits) - 1:
            return replace(resolved, document=document)
        policy = resolved.policy.capped(last_exit)
        if not self._allowed(policy):
            raise self._too_fast("max_layer", max_layer)
        # What was certified is the policy without the cap.
        document.pop("guarantees", None)
        return ResolvedPolicy(policy=policy, document=document)

    def _allowed(self, policy: Policy) -> bool:
        """Whether a policy leaves nowhere earlier than the fastest that the operator allows."""
        if self._fastest is None:
            return True
        last = len(self._exits) - 1
        limits = self._fastest.thresholds[:last]
        return policy.deepest == last and all(
            threshold <= limit
            for threshold, limit in zip(policy.thresholds[:last], limits, strict=True)
        )

    def _too_fast(self, field: str, received: float) -> InvalidRequest:
        assert self._fastest is not None, "only a bound refuses"
        members: dict[str, Member] = {
            "field": field,
            "received": received,
            "setting": "fastest_point",
        }
        inner = self._fastest.thresholds[:-1]
        if field == "threshold" and inner:
            members["limit"] = min(inner)
        return InvalidRequest(
            f"{field}: this server allows nothing faster than operating point "
            f"{self._fastest.name}; its thresholds stand in GET /model.",
            members=members,
        )

    def _find_default_point(self) -> OperatingPoint | None:
        bounds = self._bounds
        if bounds.default_threshold is not None:
            if bounds.default_point is not None:
                raise ConfigurationError("set default_threshold or default_point, not both")
            return None
        if bounds.default_point is not None:
            return self._named(bounds.default_point, "default_point")
        name = self._manifest.default_point
        return None if name is None else self._manifest.point(name)

    def _find_default(self) -> ResolvedPolicy:
        point, threshold = self._default_point, self._bounds.default_threshold
        if point is not None:
            resolved = _of_point("default", point)
        elif threshold is not None:
            resolved = _resolved("default", Policy.constant(threshold, len(self._exits)))
        else:
            resolved = _resolved("default", self._full_depth)
        if not self._allowed(resolved.policy):
            raise ConfigurationError(
                f"the default policy is faster than fastest_point {self._bounds.fastest_point!r} "
                "allows; set another default_point or fastest_point"
            )
        return resolved

    def _find_ladder(self) -> list[ResolvedPolicy]:
        worst = self._named(self._bounds.slide_to_point, "slide_to_point")
        if worst is None:
            return []
        if self._default_point is None:
            raise ConfigurationError(
                "slide_to_point needs an operating point to slide from; set default_point"
            )
        if not guarantees(worst):
            raise ConfigurationError(
                f"slide_to_point {worst.name!r} has no certificate; requests slide along certified "
                "points only"
            )
        if not self._allowed(worst.policy):
            raise ConfigurationError(
                f"slide_to_point {worst.name!r} is faster than fastest_point allows"
            )
        if worst.speedup <= self._default_point.speedup:
            raise ConfigurationError(
                f"slide_to_point {worst.name!r} is not faster than the default "
                f"{self._default_point.name!r}"
            )
        steps = ladder(self._points, self._default_point.name, worst.name)
        return [_of_point("slid", point) for point in steps[1:]]

    def _named(self, name: str | None, setting: str) -> OperatingPoint | None:
        if name is None:
            return None
        names = [known.name for known in self._manifest.operating_points]
        if name not in names:
            raise ConfigurationError(
                f"{setting} {name!r} is not an operating point of this bundle; it has "
                f"{', '.join(names) or 'none'}"
            )
        return self._manifest.point(name)


def _resolved(kind: str, policy: Policy, **more: Any) -> ResolvedPolicy:
    return ResolvedPolicy(
        policy=policy, document={"kind": kind, **more, "thresholds": list(policy.thresholds)}
    )


def _of_point(kind: str, point: OperatingPoint, **more: Any) -> ResolvedPolicy:
    promised = [
        {"kind": found.kind, "epsilon": found.epsilon, "delta": found.delta}
        for found in guarantees(point)
    ]
    return _resolved(kind, point.policy, name=point.name, **more, guarantees=promised)
