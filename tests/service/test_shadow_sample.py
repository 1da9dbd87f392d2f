"""The sample of shadow rows: what decides who is in it, in which order they are handed on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.shadow_sample import ShadowOutcome, ShadowRow, ShadowSample

EXITS = 2


class Watcher:
    """A sample, and what it handed on. Labels stand for row ids."""

    def __init__(self, *, share: float = 1.0, max_rows: int = 100, seed: int = 1) -> None:
        self.measured: list[int] = []
        self.outcomes: list[ShadowOutcome] = []
        self.sample = ShadowSample(
            share=share,
            max_rows=max_rows,
            rng=np.random.default_rng(seed),
            measured=lambda row: self.measured.append(row.labels[-1]),
            counted=self.outcomes.append,
        )

    def offer(self, *row_ids: int) -> None:
        for row_id in row_ids:
            self.sample.offer(row_id)

    def end(self, row_id: int, outcome: ShadowOutcome = "measured") -> None:
        for _ in range(EXITS):
            self.sample.saw(row_id, entropy=0.5, label=row_id)
        self.sample.end(row_id, outcome)


def test_rows_are_handed_on_as_admitted_however_they_end() -> None:
    watcher = Watcher()
    watcher.offer(1, 2, 3)
    watcher.end(3)
    watcher.end(2, "failed")
    assert watcher.measured == []
    assert 1 in watcher.sample
    assert 3 not in watcher.sample
    watcher.end(1)
    assert watcher.measured == [1, 3]
    assert watcher.outcomes == ["measured", "failed", "measured"]
    assert len(watcher.sample) == 0


@given(order=st.permutations(range(8)), failing=st.sets(st.integers(0, 7)))
def test_every_row_drawn_is_handed_on_once_in_order(order: list[int], failing: set[int]) -> None:
    watcher = Watcher()
    watcher.offer(*range(8))
    for row_id in order:
        watcher.end(row_id, "failed" if row_id in failing else "measured")
    assert watcher.measured == [row_id for row_id in range(8) if row_id not in failing]
    assert len(watcher.outcomes) == 8


def test_a_row_that_ended_keeps_its_place_while_an_earlier_one_is_open() -> None:
    # Else what waits to be handed on would have no bound.
    watcher = Watcher(max_rows=2)
    watcher.offer(1, 2)
    watcher.end(2)
    watcher.offer(3)
    assert 3 not in watcher.sample
    assert watcher.outcomes == ["dropped"]
    watcher.end(1)
    watcher.offer(4)
    assert 4 in watcher.sample


def test_rows_that_take_longest_are_in_the_sample_as_often_as_they_come() -> None:
    # Rows that leave early wait for an idle device, and most rows find no place: a sample of those
    # that end soon would hardly know of early exits, and of what they get wrong.
    watcher = Watcher(max_rows=8)
    rng = np.random.default_rng(2)
    early = rng.random(60_000) < 0.4
    due: dict[int, list[int]] = {}
    for now in range(len(early)):
        for row_id in due.pop(now, ()):
            watcher.end(row_id)
        watcher.offer(now)
        if now in watcher.sample:
            due.setdefault(now + (50 if early[now] else 2), []).append(now)
    measured = early[watcher.measured]
    assert watcher.outcomes.count("dropped") > len(early) / 2
    deviation = (0.4 * 0.6 / len(measured)) ** 0.5
    assert abs(measured.mean() - 0.4) < 4 * deviation


def test_the_share_is_drawn_and_equal_seeds_draw_alike() -> None:
    def drawn(seed: int) -> list[int]:
        watcher = Watcher(share=0.1, max_rows=10_000, seed=seed)
        watcher.offer(*range(10_000))
        return list(watcher.sample.open_rows())

    assert drawn(5) == drawn(5)
    assert drawn(5) != drawn(6)
    assert 850 < len(drawn(5)) < 1150  # 5 standard deviations


@pytest.mark.parametrize(("share", "drawn"), [(0.0, False), (1.0, True)])
def test_no_share_draws_nothing_and_the_whole_draws_all(share: float, drawn: bool) -> None:
    watcher = Watcher(share=share)
    watcher.offer(*range(50))
    assert len(watcher.sample) == (50 if drawn else 0)


def test_what_is_open_when_watching_stops_is_dropped() -> None:
    watcher = Watcher()
    watcher.offer(1, 2, 3)
    watcher.end(2)
    watcher.sample.stop()
    watcher.offer(4)
    assert watcher.measured == []
    assert watcher.outcomes == ["dropped"] * 3
    assert len(watcher.sample) == 0


def test_a_row_says_something_about_every_exit_twice() -> None:
    with pytest.raises(ValueError, match="a bug"):
        ShadowRow(entropies=(0.1,), labels=(1, 2))
