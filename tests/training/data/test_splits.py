"""Splits: nothing leaks, labels travel by name, and what cannot be used is named."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_exit.errors import DataError
from tests.conftest import write_csv
from training.data import DataConfig, LabelledExample, load_splits
from training.data.hold_out import hold_out

ROWS = [(f"text {number}", "abc"[number % 3]) for number in range(90)]
EXAMPLES = st.lists(
    st.builds(
        LabelledExample,
        text=st.sampled_from([f"t{number}" for number in range(30)]),
        label=st.sampled_from(["x", "y", "z"]),
    ),
    min_size=3,
    max_size=80,
)


def test_shares_are_stratified_and_exact(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "train.csv", ROWS)
    splits = load_splits(DataConfig(train=path, validation=0.1, calibration=0.2, test=0.3))
    for name, size in (("validation", 9), ("calibration", 18), ("test", 27), ("train", 36)):
        examples = getattr(splits, name)
        assert len(examples) == size
        assert set(Counter(example.label for example in examples).values()) == {size // 3}


@given(examples=EXAMPLES, seed=st.integers(0, 99), share=st.floats(0.0, 0.4))
def test_held_out_texts_are_in_one_split_only_and_none_is_lost(
    examples: list[LabelledExample], seed: int, share: float
) -> None:
    kept, held_out = hold_out(examples, {"validation": share, "calibration": share}, seed)
    parts = [kept, *held_out.values()]
    assert sum((Counter(part) for part in parts), Counter()) == Counter(examples)
    texts = [{example.text for example in part} for part in parts]
    for index, one in enumerate(texts):
        for other in texts[index + 1 :]:
            assert not one & other


@given(examples=EXAMPLES, seed=st.integers(0, 99), share=st.floats(0.0, 0.44))
def test_every_label_with_a_text_of_its_own_keeps_one_for_training(
    examples: list[LabelledExample], seed: int, share: float
) -> None:
    kept, _ = hold_out(examples, {"validation": share, "calibration": share}, seed)
    labels_of: dict[str, set[str]] = {}
    for example in examples:
        labels_of.setdefault(example.text, set()).add(example.label)
    sure = {example.label for example in examples if labels_of[example.text] == {example.label}}
    assert sure <= {example.label for example in kept}


def test_the_split_is_a_function_of_its_seed_and_not_of_the_runs(tmp_path: Path) -> None:
    config = DataConfig(train=write_csv(tmp_path / "train.csv", ROWS))
    again = load_splits(config)
    assert load_splits(config) == again
    other = load_splits(config.model_copy(update={"split_seed": 18}))
    assert other.fingerprints != again.fingerprints


def test_a_file_is_taken_whole_and_as_it_is(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "train.csv", ROWS)
    test = write_csv(tmp_path / "test.csv", [("new", "c"), ("newer", "a")])
    splits = load_splits(DataConfig(train=train, validation=0.0, calibration=0.0, test=test))
    assert [example.text for example in splits.test] == ["new", "newer"]
    assert len(splits.train) == 90
    assert set(splits.fingerprints) == {"train", "test"}


def test_training_never_sees_a_text_of_the_calibration_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train = write_csv(tmp_path / "train.csv", ROWS)
    calibration = write_csv(tmp_path / "calibration.csv", [*ROWS[:2], ("new", "a")])
    with caplog.at_level(logging.WARNING):
        splits = load_splits(DataConfig(train=train, calibration=calibration, validation=0.1))
    seen = {example.text for example in (*splits.train, *splits.validation)}
    assert not seen & {example.text for example in splits.calibration}
    assert len(splits.calibration) == 3
    assert "2 training texts are among the calibration texts too" in caplog.text


@pytest.mark.parametrize("share", [True, False])
def test_no_epoch_is_chosen_by_a_text_that_calibrates(tmp_path: Path, share: bool) -> None:
    train = write_csv(tmp_path / "train.csv", ROWS)
    # Half of the training texts, as a validation file: duplicates across files are common.
    validation = write_csv(tmp_path / "validation.csv", [*ROWS[::2], ("new", "a")])
    calibration = write_csv(tmp_path / "calibration.csv", [*ROWS[:9], ("newer", "b")])
    config = DataConfig(
        train=train, validation=validation, calibration=0.3 if share else calibration
    )
    splits = load_splits(config)
    chosen_by = {example.text for example in splits.validation}
    calibrates = {example.text for example in splits.calibration}
    assert len(calibrates) == (27 if share else 10)
    assert not chosen_by & calibrates
    assert "new" in chosen_by


def test_labels_are_sorted_whatever_the_order_of_rows(tmp_path: Path) -> None:
    forwards = load_splits(DataConfig(train=write_csv(tmp_path / "a.csv", ROWS)))
    backwards = load_splits(DataConfig(train=write_csv(tmp_path / "b.csv", ROWS[::-1])))
    assert forwards.labels == backwards.labels == ("a", "b", "c")


@pytest.mark.parametrize("suffix", [".json", ".txt"])
def test_listed_labels_keep_their_order(tmp_path: Path, suffix: str) -> None:
    names = ["c", "never seen", "a", "b"]
    listing = tmp_path / f"labels{suffix}"
    listing.write_text(json.dumps(names) if suffix == ".json" else "\n".join(names) + "\n\n")
    train = write_csv(tmp_path / "train.csv", ROWS)
    assert load_splits(DataConfig(train=train, labels=listing)).labels == tuple(names)
    assert load_splits(DataConfig(train=train, labels=tuple(names))).labels == tuple(names)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"a": 1}', "expected a list of label names"),
        ('["a", 1]', "expected a list of label names"),
        ('["a", "b", "a"]', "label 'a' is listed twice"),
        ('["a"]', "a classifier needs two labels; 1 listed"),
        ("[", "is not JSON"),
    ],
)
def test_a_broken_list_of_labels_is_named(tmp_path: Path, content: str, reason: str) -> None:
    listing = tmp_path / "labels.json"
    listing.write_text(content)
    train = write_csv(tmp_path / "train.csv", ROWS)
    with pytest.raises(DataError, match=reason) as caught:
        load_splits(DataConfig(train=train, labels=listing))
    assert str(listing) in str(caught.value)


@pytest.mark.parametrize("split", ["validation", "calibration", "test"])
def test_an_evaluation_label_that_training_does_not_know_is_named(
    tmp_path: Path, split: str
) -> None:
    train = write_csv(tmp_path / "train.csv", ROWS)
    other = write_csv(tmp_path / "other.csv", [("fine", "a"), ("odd", "d")])
    with pytest.raises(DataError, match=r"other\.csv, row 2: label 'd' is not one of the 3"):
        load_splits(DataConfig.model_validate({"train": train, split: other}))


def test_a_training_label_that_is_not_listed_is_named(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "train.csv", ROWS)
    with pytest.raises(DataError, match=r"train\.csv, row 3: label 'c' is not one of the 2"):
        load_splits(DataConfig(train=train, labels=("a", "b")))


def test_one_label_only_is_refused(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "train.csv", [("one", "a"), ("two", "a")])
    with pytest.raises(DataError, match=r"train\.csv: 2 training texts of one label only"):
        load_splits(DataConfig(train=train, validation=0.0, calibration=0.0))


def test_fingerprints_tell_texts_pairs_labels_and_order(tmp_path: Path) -> None:
    def fingerprint(rows: list[tuple[str, str]]) -> str:
        config = DataConfig(
            train=write_csv(tmp_path / "train.csv", rows), validation=0.0, calibration=0.0
        )
        return load_splits(config).fingerprints["train"]

    rows = ROWS[:4]
    different = [rows, rows[::-1], [("text 0 ", "a"), *rows[1:]], [("text 0", "b"), *rows[1:]]]
    assert len({fingerprint(variant) for variant in different}) == 4
    assert fingerprint(rows) == fingerprint(rows)


def test_fingerprints_tell_the_second_text_of_a_pair(tmp_path: Path) -> None:
    found = set()
    for second in ("two", "too"):
        path = tmp_path / f"{second}.csv"
        lines = "".join(f"one {row},{second},{'ab'[row % 2]}\n" for row in range(4))
        path.write_text("text,other,label\n" + lines)
        config = DataConfig(train=path, text_pair_column="other", validation=0.0, calibration=0.0)
        found.add(load_splits(config).fingerprints["train"])
    assert len(found) == 2


def test_pairs_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    lines = "".join(f"one {row},two,{'ab'[row % 2]}\n" for row in range(20))
    path.write_text("text,other,label\n" + lines)
    splits = load_splits(DataConfig(train=path, text_pair_column="other"))
    assert splits.takes_pairs
    assert splits.train[0].text_input.text_pair == "two"
