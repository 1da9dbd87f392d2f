"""Which operating point answers a wish, against a plain reading of the rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_exit.bundle import OperatingPoint
from multi_exit.certificate import Certificate, CertificateKind
from multi_exit.contracts import (
    ConflictingKnobs,
    Knobs,
    UnreachableContract,
    guarantees,
    ladder,
    point_for,
)

KINDS: tuple[CertificateKind, ...] = ("consistency", "accuracy_drop", "expected_disagreement")
EPSILONS = (0.005, 0.01, 0.02, 0.05)


def certificate(kind: CertificateKind, epsilon: float, label: str | None = None) -> Certificate:
    return Certificate(
        kind=kind,
        epsilon=epsilon,
        delta=0.05,
        samples=1000,
        errors=1,
        label=label,
        p_value=0.01,
        upper_bound=epsilon,
        statement="…",
    )


def point(
    name: str, speedup: float, *certificates: Certificate, agreement: float = 0.99
) -> OperatingPoint:
    return OperatingPoint(
        name=name,
        thresholds=(min(1.0, speedup / 10), 0.0),
        average_layers=6 / speedup,
        speedup=speedup,
        samples=1000,
        agreement=agreement,
        accuracy=None,
        full_depth_accuracy=None,
        certificates=certificates,
    )


POINTS = st.lists(
    st.tuples(
        st.floats(1, 6),
        st.floats(0.5, 1),
        st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(EPSILONS)), max_size=4),
    ),
    max_size=6,
).map(
    lambda drawn: [
        point(
            f"p{number}", speedup, *(certificate(*each) for each in promised), agreement=agreement
        )
        for number, (speedup, agreement, promised) in enumerate(drawn)
    ]
)


@given(POINTS, st.sampled_from(("max_accuracy_drop", "max_disagreement")), st.floats(0.001, 0.1))
def test_a_quality_gets_the_fastest_point_that_is_certified_for_it(
    points: list[OperatingPoint], name: str, asked: float
) -> None:
    covering = {"consistency"} | ({"accuracy_drop"} if name == "max_accuracy_drop" else set())
    promised = {
        found.name: [c.epsilon for c in found.certificates if c.kind in covering]
        for found in points
    }
    keeping = [found for found in points if any(e <= asked for e in promised[found.name])]
    if keeping:
        chosen = point_for(points, name, asked)
        assert chosen in keeping
        assert chosen.speedup == max(found.speedup for found in keeping)
        return
    with pytest.raises(UnreachableContract) as caught:
        point_for(points, name, asked)
    everything = [epsilon for epsilons in promised.values() for epsilon in epsilons]
    assert caught.value.nearest == min(everything, default=None)
    if caught.value.nearest is not None:
        point_for(points, name, caught.value.nearest)  # what is named can be had


@given(POINTS, st.floats(1, 8))
def test_a_speed_gets_the_safest_point_that_reaches_it(
    points: list[OperatingPoint], asked: float
) -> None:
    reaching = [found for found in points if found.speedup >= asked]
    if reaching:
        chosen = point_for(points, "speed", asked)
        assert chosen in reaching
        assert chosen.agreement == max(found.agreement for found in reaching)
        return
    with pytest.raises(UnreachableContract) as caught:
        point_for(points, "speed", asked)
    assert (caught.value.nearest is None) == (not points)
    if caught.value.nearest is not None:
        point_for(points, "speed", caught.value.nearest)


def test_a_promise_about_one_class_is_no_promise_about_all() -> None:
    only = point("rare", 3.0, certificate("consistency", 0.01, label="rare"))
    with pytest.raises(UnreachableContract, match="certified"):
        point_for([only], "max_disagreement", 0.05)
    assert guarantees(only) == ()


def test_the_message_names_what_can_be_had() -> None:
    points = [point("careful", 2.0, certificate("consistency", 0.02))]
    with pytest.raises(UnreachableContract, match=r"for 0\.01; the nearest is 0\.02, by careful"):
        point_for(points, "max_disagreement", 0.01)
    with pytest.raises(UnreachableContract, match=r"reaches 4 times; the fastest, careful.*2\."):
        point_for(points, "speed", 4.0)


@pytest.mark.parametrize(
    ("knobs", "field"),
    [
        ({"threshold": 0.1, "speed": 2.0}, "speed"),
        ({"max_accuracy_drop": 0.1, "max_disagreement": 0.1}, "max_disagreement"),
        ({"max_accuracy_drop": 0.1, "max_layer": 3}, "max_layer"),
        ({"max_disagreement": 0.1, "max_layer": 3}, "max_layer"),
    ],
)
def test_wishes_that_exclude_each_other_are_refused(knobs: dict[str, Any], field: str) -> None:
    with pytest.raises(ConflictingKnobs, match="exclude") as caught:
        Knobs(**knobs)
    assert caught.value.field == field


@pytest.mark.parametrize("knobs", [{}, {"threshold": 0.1, "max_layer": 3}, {"speed": 2.0}])
def test_wishes_that_go_together_are_taken(knobs: dict[str, Any]) -> None:
    assert Knobs(**knobs).contract == (("speed", 2.0) if "speed" in knobs else None)


def test_the_strongest_promise_of_each_kind_is_the_guarantee() -> None:
    found = point(
        "several",
        2.0,
        certificate("accuracy_drop", 0.02),
        certificate("consistency", 0.05),
        certificate("consistency", 0.01),
        certificate("consistency", 0.005, label="rare"),
    )
    assert [(c.kind, c.epsilon) for c in guarantees(found)] == [
        ("consistency", 0.01),
        ("accuracy_drop", 0.02),
    ]


def test_a_ladder_has_only_certified_steps_between_its_ends() -> None:
    points = [
        point("full-depth", 1.0),
        point("a", 1.5, certificate("consistency", 0.005)),
        point("shown", 2.0),
        point("b", 2.5, certificate("consistency", 0.01)),
        point("c", 3.0, certificate("consistency", 0.02)),
        point("d", 4.0, certificate("consistency", 0.05)),
    ]
    assert [p.name for p in ladder(points, "full-depth", "c")] == ["full-depth", "a", "b", "c"]
    assert [p.name for p in ladder(points, "b", "d")] == ["b", "c", "d"]
    assert [p.name for p in ladder(points, "d", "b")] == ["d"]
