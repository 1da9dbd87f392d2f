"""The comparison: means, deviations and paired intervals, recomputed by scipy from the cells."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.training.experiment.cells import make_cell
from training.experiment.cell import Cell
from training.experiment.curves import area_under_curve, layers_saved
from training.experiment.table import MethodRow, compare, comparison_table, paired_interval

WEIGHT = "objective.contrastive_weight"


def grid(tasks: tuple[str, ...] = ("sst2", "cola"), seeds: int = 3) -> list[Cell]:
    return [
        make_cell(task=task, method=method, seed=seed, gain=0.002 * seed * len(method))
        for seed in range(1, seeds + 1)
        for task in tasks
        for method in ("ce", "acl-cl")
    ]


def row_of(rows: tuple[MethodRow, ...], task: str | None, method: str) -> MethodRow:
    (found,) = (row for row in rows if (row.task, row.method) == (task, method))
    return found


@given(values=st.lists(st.floats(-5, 5), min_size=2, max_size=9))
def test_intervals_are_those_of_scipy(values: list[float]) -> None:
    found = paired_interval(values)
    assert found is not None
    assert found.mean == pytest.approx(np.mean(values), abs=1e-12)
    error = stats.sem(values)
    if error > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=error)
        assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_the_gain_is_that_of_a_paired_t_test() -> None:
    cells = grid(("sst2",), seeds=5)
    row = row_of(compare(cells, "ce"), "sst2", "acl-cl")
    own, other = (
        [100 * np.mean(cell.score_by_exit) for cell in cells if cell.method == method]
        for method in ("acl-cl", "ce")
    )
    interval = stats.ttest_rel(own, other).confidence_interval(0.95)
    assert row.gain is not None
    assert row.gain.mean == pytest.approx(np.mean(np.subtract(own, other)))
    assert (row.gain.low, row.gain.high) == (
        pytest.approx(interval.low),
        pytest.approx(interval.high),
    )
    assert row.score == pytest.approx(np.mean(own))
    assert row.score_deviation == pytest.approx(np.std(own, ddof=1))
    assert row.seeds == row.gain.pairs == 5


def test_areas_and_layers_saved_are_means_over_seeds() -> None:
    cells = grid(("sst2",))
    row = row_of(compare(cells, "ce"), "sst2", "acl-cl")
    own = [cell for cell in cells if cell.method == "acl-cl"]
    others = [cell for cell in cells if cell.method == "ce"]
    areas = [area_under_curve(c.quality_speed, first_layer=1, last_layer=6) for c in own]
    assert row.area == pytest.approx(100 * np.mean(areas))
    saved = [
        layers_saved(a.quality_speed, b.quality_speed) for a, b in zip(own, others, strict=True)
    ]
    assert None not in saved
    assert row.saved is not None
    assert row.saved.mean == pytest.approx(100 * np.mean(np.array(saved, dtype=float)))


def test_over_all_tasks_a_pair_is_a_seed() -> None:
    cells = grid()
    rows = compare(cells, "ce")
    by_key = {(c.task, c.method, c.seed): 100 * c.mean_score for c in cells}
    gains = [
        np.mean([by_key[t, "acl-cl", s] - by_key[t, "ce", s] for t in ("sst2", "cola")])
        for s in (1, 2, 3)
    ]
    interval = stats.ttest_1samp(gains, 0.0).confidence_interval(0.95)
    row = row_of(rows, None, "acl-cl")
    assert row.gain is not None
    assert (row.gain.mean, row.gain.low, row.gain.high, row.gain.pairs) == (
        pytest.approx(np.mean(gains)),
        pytest.approx(interval.low),
        pytest.approx(interval.high),
        3,
    )
    assert [row.task for row in compare(grid(("sst2",)), "ce")] == ["sst2", "sst2"]


def test_a_seed_that_a_task_lacks_is_not_averaged_with_whole_ones() -> None:
    cells = [*grid(), make_cell(task="sst2", method="ce", seed=4)]
    cells += [make_cell(task="sst2", method="half", seed=seed) for seed in (1, 2, 3)]
    rows = compare(cells, "ce")
    assert row_of(rows, "sst2", "ce").seeds == 4
    assert row_of(rows, None, "ce").seeds == 3
    assert all(row.method != "half" for row in rows if row.task is None)
    # acl-cl's third seed has no partner on cola: neither has the mean of that seed.
    fewer = [c for c in grid() if (c.task, c.method, c.seed) != ("cola", "ce", 3)]
    gain = row_of(compare(fewer, "ce"), None, "acl-cl").gain
    assert gain is not None
    assert gain.pairs == 2


def test_the_baseline_gains_nothing_over_itself_and_one_pair_has_no_interval() -> None:
    rows = compare(grid(("sst2",), seeds=1), "ce")
    baseline, row = rows
    assert (baseline.gain, baseline.saved, baseline.score_deviation) == (None, None, None)
    assert row.gain is not None
    assert math.isinf(row.gain.high)
    assert str(row.gain).endswith("(1 pair)")
    assert paired_interval([]) is None


def test_a_method_without_the_baselines_seeds_has_no_gain() -> None:
    rows = compare([make_cell(method="ce", seed=1), make_cell(seed=2)], "ce")
    assert row_of(rows, "sst2", "acl-cl").gain is None


def test_a_plain_model_of_one_exit_is_compared_at_that_layer() -> None:
    reference = make_cell(method="ce")
    score = reference.mean_score  # which the baseline reaches too
    plain = make_cell(method="plain").model_copy(
        update={
            "exits": (6,),
            "score_by_exit": (score,),
            "quality_speed": ((6.0, score),),
            "contrastive_kept_by_exit": (1.0,),
        }
    )
    row = row_of(compare([reference, plain], "ce"), "sst2", "plain")
    assert row.gain is not None
    assert row.gain.mean == pytest.approx(100 * (score - reference.score_by_exit[5]))
    assert row.saved is None


def test_the_table_tells_variants_apart_by_what_was_swept() -> None:
    cells = [
        make_cell(method="ce", seed=1),
        *(
            make_cell(seed=seed, settings={"objective.method": "acl-cl", WEIGHT: weight})
            for weight in (0.1, 0.5)
            for seed in (1, 2)
        ),
    ]
    lines = comparison_table(compare(cells, "ce"), "ce").splitlines()
    assert "gain over ce" in lines[0]
    assert [line.split()[1] for line in lines[1:]] == ["ce", "acl-cl", "acl-cl"]
    assert "contrastive_weight=0.1" in lines[2]
    assert "contrastive_weight=0.5" in lines[3]
    assert "method=" not in "".join(lines), "what all variants share is not repeated"
    assert "±" not in lines[1], "one seed has no deviation"
    assert "±" in lines[2]
