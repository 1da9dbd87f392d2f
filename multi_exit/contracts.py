"""Which operating point answers a caller's wish: a quality to keep, or a speed to reach."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from multi_exit.bundle import OperatingPoint
from multi_exit.certificate import Certificate, CertificateKind
from multi_exit.errors import PolicyError

# A label that does not change cannot be lost: a bound on disagreement bounds the accuracy drop.
_COVERING: dict[str, tuple[CertificateKind, ...]] = {
    "max_accuracy_drop": ("accuracy_drop", "consistency"),
    "max_disagreement": ("consistency",),
}
_GUARANTEES: tuple[CertificateKind, ...] = ("consistency", "accuracy_drop", "expected_disagreement")


class ConflictingKnobs(PolicyError):
    """Two wishes that exclude each other. field: the one to leave out."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class UnreachableContract(PolicyError):
    """No operating point keeps it. nearest: what could be asked instead, None for nothing."""

    def __init__(self, message: str, *, field: str, asked: float, nearest: float | None) -> None:
        super().__init__(message)
        self.field = field
        self.asked = asked
        self.nearest = nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What a caller asks of quality and speed. At most one of the first four.

    threshold: of entropy, for every exit. max_accuracy_drop, max_disagreement: against full depth,
    as shares, kept with the confidence of the certificate. speed: mean speed-up against full
    depth, in layers. max_layer: never deeper than the last exit at or above this layer.
    Raises ConflictingKnobs.
    """

    threshold: float | None = None
    max_accuracy_drop: float | None = None
    max_disagreement: float | None = None
    speed: float | None = None
    max_layer: int | None = None

    def __post_init__(self) -> None:
        named = [
            field.name
            for field in fields(self)
            if field.name != "max_layer" and getattr(self, field.name) is not None
        ]
        if len(named) > 1:
            raise ConflictingKnobs(
                f"{named[0]} and {named[1]} exclude each other; send one of them.", field=named[1]
            )
        if self.max_layer is not None and named and named[0] in _COVERING:
            raise ConflictingKnobs(
                f"max_layer and {named[0]} exclude each other: an answer that is cut short at a "
                "layer is not covered by a certificate; send one of them.",
                field="max_layer",
            )

    @property
    def contract(self) -> tuple[str, float] | None:
        """The wish that an operating point must answer, by name, if there is one."""
        for name in (*_COVERING, "speed"):
            value = getattr(self, name)
            if value is not None:
                return name, value
        return None


def point_for(points: Sequence[OperatingPoint], name: str, asked: float) -> OperatingPoint:
    """The operating point that answers one wish.

    max_accuracy_drop, max_disagreement: the fastest point whose certificate about all texts covers
    `asked`. speed: of the points at least so fast, the one that most often says what full depth
    says. Raises UnreachableContract where there is none.
    """
    if name == "speed":
        return _at_speed(points, asked)
    kinds = _COVERING[name]
    eligible = [point for point in points if any(point.promises(kind, asked) for kind in kinds)]
    if eligible:
        return max(eligible, key=lambda point: point.speedup)
    promised = sorted(
        (certificate.epsilon, point.name)
        for point in points
        for certificate in point.certificates
        if certificate.kind in kinds and point.promises(certificate.kind, certificate.epsilon)
    )
    if not promised:
        raise UnreachableContract(
            f"{name}: no operating point of this bundle is certified for that; threshold 0 runs "
            "full depth.",
            field=name,
            asked=asked,
            nearest=None,
        )
    nearest, at = promised[0]
    raise UnreachableContract(
        f"{name}: no operating point is certified for {asked:g}; the nearest is {nearest:g}, by "
        f"{at}. Threshold 0 runs full depth.",
        field=name,
        asked=asked,
        nearest=nearest,
    )


def guarantees(point: OperatingPoint) -> tuple[Certificate, ...]:
    """The strongest certificate about all texts of each kind, strongest kind first."""
    found = []
    for kind in _GUARANTEES:
        certificates = [c for c in point.certificates if c.kind == kind and c.label is None]
        if certificates:
            found.append(min(certificates, key=lambda certificate: certificate.epsilon))
    return tuple(found)


def ladder(
    points: Iterable[OperatingPoint], slowest: str, fastest: str
) -> tuple[OperatingPoint, ...]:
    """The certified points between two, both of which are included, ascending in speed.

    Raises KeyError for a name that is not a point.
    """
    by_name = {point.name: point for point in points}
    low, high = by_name[slowest], by_name[fastest]
    if high.speedup <= low.speedup:
        return (low,)
    between = [
        point
        for point in by_name.values()
        if low.speedup < point.speedup < high.speedup and guarantees(point)
    ]
    return (low, *sorted(between, key=lambda point: point.speedup), high)


def _at_speed(points: Sequence[OperatingPoint], asked: float) -> OperatingPoint:
    eligible = [point for point in points if point.speedup >= asked]
    if eligible:
        return max(eligible, key=lambda point: (point.agreement, -point.speedup))
    if not points:
        raise UnreachableContract(
            "speed: this bundle has no operating points.", field="speed", asked=asked, nearest=None
        )
    fastest = max(points, key=lambda point: point.speedup)
    # Rounded down, so that asking for it succeeds.
    nearest = int(fastest.speedup * 100) / 100
    raise UnreachableContract(
        f"speed: no operating point reaches {asked:g} times; the fastest, {fastest.name}, reaches "
        f"{nearest:g}.",
        field="speed",
        asked=asked,
        nearest=nearest,
    )
