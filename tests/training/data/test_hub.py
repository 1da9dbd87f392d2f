"""Data sets by name, through the `datasets` library, from folders on this machine."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest

from multi_exit.errors import DataError
from training.data import DataConfig, load_splits
from training.data.hub import read_dataset


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set with class names, as its own folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "named"
    names = datasets.ClassLabel(names=["low", "high"])
    features = datasets.Features(
        {"text": datasets.Value("string"), "pair": datasets.Value("string"), "label": names}
    )
    for split, rows in (("train", 40), ("test", 6)):
        table = datasets.Dataset.from_dict(
            {
                "text": [f"{split} {row}" for row in range(rows)],
                "pair": [f"pair {row}" for row in range(rows)],
                "label": [row % 2 for row in range(rows)],
            },
            features=features,
        )
        folder.mkdir(exist_ok=True)
        table.to_parquet(folder / f"{split}.parquet")
    return str(folder)


def test_class_numbers_become_their_names(name: str) -> None:
    examples = read_dataset(DataConfig(dataset=name, text_pair_column="pair"), "train")
    assert len(examples) == 40
    assert [example.label for example in examples[:3]] == ["low", "high", "low"]
    assert (examples[1].text, examples[1].text_pair) == ("train 1", "pair 1")


def test_splits_go_by_their_names(name: str) -> None:
    splits = load_splits(DataConfig(dataset=name, test=Path("test"), calibration=0.2))
    assert [example.text for example in splits.test] == [f"test {row}" for row in range(6)]
    assert len(splits.calibration) == 8
    assert splits.labels == ("high", "low")


@pytest.mark.parametrize(
    ("settings", "split", "reason"),
    [
        ({}, "validation", "cannot load split 'validation'"),
        ({"text_column": "sentence"}, "train", "no column 'sentence'; it has"),
        ({"dataset": "/nowhere/at/all"}, "train", "cannot load split 'train' of data set"),
    ],
)
def test_what_cannot_be_had_is_named(
    name: str, settings: dict[str, str], split: str, reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        read_dataset(DataConfig.model_validate({"dataset": name, **settings}), split)


@pytest.mark.parametrize(
    ("text", "label", "reason"),
    [
        ("  ", 0, "row 2: column 'text' holds no text"),
        (None, 0, "row 2: column 'text' holds no text"),
        ("fine", -1, r"row 2: column 'label' holds no label \(-1\)"),
        ("fine", None, "row 2: column 'label' holds no label"),
    ],
)
def test_a_row_without_text_or_label_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    label: int | None,
    reason: str,
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["low", "high"])}
    )
    table = datasets.Dataset.from_dict(
        {"text": ["first", text], "label": [1, label]}, features=features
    )
    (tmp_path / "named").mkdir()
    table.to_parquet(tmp_path / "named" / "train.parquet")
    with pytest.raises(DataError, match=reason):
        read_dataset(DataConfig(dataset=str(tmp_path / "named")), "train")
