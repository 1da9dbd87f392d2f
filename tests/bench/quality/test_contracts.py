"""The measurement of contracts: what it saves, draws and counts, on outputs with known answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.quality.contract_shift import alarms, shifts
from bench.quality.contract_splits import PATHS, contracts
from bench.quality.contracts import measured, tables
from bench.quality.exit_outputs import ExitRecord, load_record


def _record(texts: int = 1200, *, wrong: float = 0.0, shifted: float | None = None) -> ExitRecord:
    """Two exits; the first is sure of every text, and wrong in this share of them."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, texts)
    predicted = np.column_stack([(labels + (rng.uniform(size=texts) < wrong)) % 4, labels])
    entropy = np.column_stack([rng.uniform(0.1, 0.2, texts), np.zeros(texts)]).astype(np.float32)
    other = np.zeros((300, 2), np.int64)
    if shifted is not None:
        other[: round(300 * shifted), 0] = 1
    return ExitRecord(
        name="toy",
        classes=4,
        exits=(1, 2),
        predicted=predicted,
        entropy=entropy,
        labels=labels,
        shift_predicted=None if shifted is None else other,
        shift_entropy=None if shifted is None else entropy[:300],
    )


def test_a_record_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    record = _record(shifted=0.5)
    record.save(tmp_path / "toy.npz")
    found = load_record(tmp_path / "toy.npz")
    assert (found.name, found.classes, found.exits) == ("toy", 4, (1, 2))
    for name in ("predicted", "entropy", "labels", "shift_predicted", "shift_entropy"):
        np.testing.assert_array_equal(getattr(found, name), getattr(record, name))
    assert len(found.some(100, seed=0).labels) == 100
    _record().save(tmp_path / "plain.npz")
    assert load_record(tmp_path / "plain.npz").shift_predicted is None


def test_exits_that_never_differ_keep_every_contract_after_the_first_layer() -> None:
    found = contracts(_record(), draws=2, seed=0)
    assert {(c.way, c.path) for c in found} == {(w, p) for w in ("split", "redraw") for p in PATHS}
    for contract in found:
        assert contract.kept == contract.draws == 2
        assert contract.truth == 0
        if (contract.kind, contract.epsilon) == ("consistency", 0.02):
            assert contract.certified == 2
            # Tuned thresholds end just above what tuning saw: a few texts go on.
            assert contract.layers == pytest.approx(1, abs=0.05)


def test_an_exit_that_often_differs_is_not_certified_and_full_depth_keeps_the_contract() -> None:
    for contract in contracts(_record(wrong=0.5), draws=2, seed=0):
        if contract.path == "constant" and contract.kind == "consistency":
            assert (contract.kept, contract.certified, contract.layers) == (2, 0, 2)


@pytest.mark.parametrize(("share", "broken"), [(0.5, 3), (0.0, 0)])
def test_a_shift_breaks_the_contract_only_where_other_texts_differ(
    share: float, broken: int
) -> None:
    found = {s.shifted: s for s in shifts(_record(shifted=share), "out of scope", 3, seed=0)}
    assert found[1.0].broken == found[0.2].broken == broken
    assert found[1.0].disagreement == pytest.approx(share)
    assert found[0.0].broken == 0


def test_the_drift_test_alarms_soon_when_half_of_the_answers_differ() -> None:
    found = alarms(_record(shifted=0.5), "out of scope", 2, seed=0)
    assert {alarm.shadow_share for alarm in found} == {0.01, 1.0}
    for alarm in found:
        assert (alarm.early, alarm.missed) == (0, 0)
        assert alarm.answers is not None
        assert alarm.shadow_rows is not None
        assert alarm.shadow_rows < 200
        assert alarm.answers >= alarm.shadow_rows


def test_the_tables_hold_every_line() -> None:
    document = measured(_record(wrong=0.01), draws=2, runs=0)
    text = tables([document])
    assert text.count("| toy | consistency |") == 6
    assert "| toy | hard labels | 100% |" in text
