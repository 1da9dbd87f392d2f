"""Splits a task into training, validation, calibration and test texts that share none."""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from multi_exit.errors import DataError
from training.data.config import DataConfig
from training.data.example import LabelledExample
from training.data.glue import FORMATS, glue_labels, read_glue
from training.data.hub import read_dataset
from training.data.tables import decode, read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """Texts of one task. labels: names in the order of the classifier's rows.

    fingerprints: SHA-256 of each split's texts and labels, in order. Calibration and test texts
    are never seen by training, nor chosen by.
    """

    labels: tuple[str, ...]
    train: tuple[LabelledExample, ...]
    validation: tuple[LabelledExample, ...]
    calibration: tuple[LabelledExample, ...]
    test: tuple[LabelledExample, ...]
    metric: str

    @property
    def takes_pairs(self) -> bool:
        return self.train[0].text_pair is not None

    @property
    def fingerprints(self) -> dict[str, str]:
        named = ("train", "validation", "calibration", "test")
        return {name: _fingerprint(getattr(self, name)) for name in named if getattr(self, name)}


def load_splits(config: DataConfig) -> Splits:
    """Reads and splits what [data] names.

    Raises DataError that names file and row for anything that cannot be used: among others an
    evaluation label that training does not know, and training texts of one class only.
    """
    given = {
        name: _read(config, name)
        for name in ("validation", "calibration", "test")
        if isinstance(getattr(config, name), Path)
    }
    train = _read(config, "train")
    if config.test is None and config.glue is not None:
        given["test"] = _read(config, "test")
    labels = _labels(config, train)
    source = str(config.train or config.folder or config.dataset)
    _check_labels(train, labels, source)
    for name, examples in given.items():
        _check_labels(examples, labels, str(getattr(config, name) or config.folder))
    shares = {
        name: share
        for name in ("validation", "calibration", "test")
        if isinstance(share := getattr(config, name), float)
    }
    kept, held_out = _hold_out(train, shares, config.split_seed)
    if len({example.label for example in kept}) < 2:
        raise DataError(f"{source}: the training texts have one label only; a classifier needs two")
    found = {**dict.fromkeys(("validation", "calibration", "test"), ()), **given, **held_out}
    return Splits(
        labels=labels,
        train=tuple(kept),
        validation=tuple(found["validation"]),
        calibration=tuple(found["calibration"]),
        test=tuple(found["test"]),
        metric=FORMATS[config.glue].metric if config.glue else "accuracy",
    )


def _read(config: DataConfig, split: str) -> list[LabelledExample]:
    named = getattr(config, split)
    if config.glue is not None and config.folder is not None:
        names = {"train": "train.tsv", "test": FORMATS[config.glue].dev}
        path = named if isinstance(named, Path) else config.folder / names[split]
        return read_glue(path, config.glue)
    if config.dataset is not None and not isinstance(named, Path):
        return read_dataset(config, split)
    return read_table(
        named,
        text_column=config.text_column,
        label_column=config.label_column,
        text_pair_column=config.text_pair_column,
    )


def _labels(config: DataConfig, train: Sequence[LabelledExample]) -> tuple[str, ...]:
    if isinstance(config.labels, tuple):
        return config.labels
    if isinstance(config.labels, Path):
        return _label_file(config.labels)
    if config.glue is not None:
        return glue_labels(config.glue)
    # Sorted, never by first appearance: the order must not depend on how rows were shuffled.
    return tuple(sorted({example.label for example in train}))


def _label_file(path: Path) -> tuple[str, ...]:
    text = decode(path)
    if path.suffix.lower() == ".json":
        try:
            names = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(f"{path} is not JSON: {error}") from error
    else:
        names = [line.strip() for line in text.splitlines() if line.strip()]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path}: expected a list of label names")
    if len(set(names)) != len(names):
        raise DataError(f"{path}: label names must differ")
    return tuple(names)


def _check_labels(
    examples: Sequence[LabelledExample], labels: tuple[str, ...], source: str
) -> None:
    known = set(labels)
    for row, example in enumerate(examples, start=1):
        if example.label not in known:
            raise DataError(
                f"{source}, row {row}: label {example.label!r} is not one of the "
                f"{len(labels)} labels of the task; correct it, or list it under data.labels"
            )


def _hold_out(
    examples: Sequence[LabelledExample], shares: dict[str, float], seed: int
) -> tuple[list[LabelledExample], dict[str, list[LabelledExample]]]:
    """Draws each share within each label, so that rare labels are in every split alike.

    Texts that occur twice stay on one side: a text seen in training calibrates nothing.
    """
    by_label: dict[str, dict[tuple[str, str | None], list[int]]] = defaultdict(dict)
    for row, example in enumerate(examples):
        by_label[example.label].setdefault((example.text, example.text_pair), []).append(row)
    generator = random.Random(seed)
    belongs: dict[int, str] = {}
    carried = dict.fromkeys(shares, 0.0)
    for label in sorted(by_label):
        groups = sorted(by_label[label].values())
        generator.shuffle(groups)
        for name, share in shares.items():
            # What rounding leaves over is carried to the next label, so shares come out exact.
            wanted = share * sum(map(len, by_label[label].values())) + carried[name]
            taken = 0
            while groups and taken < round(wanted):
                group = groups.pop()
                belongs.update(dict.fromkeys(group, name))
                taken += len(group)
            carried[name] = wanted - taken
    kept = [example for row, example in enumerate(examples) if row not in belongs]
    held_out = {
        name: [example for row, example in enumerate(examples) if belongs.get(row) == name]
        for name in shares
    }
    return kept, held_out


def _fingerprint(examples: Sequence[LabelledExample]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        line = json.dumps([example.text, example.text_pair, example.label], ensure_ascii=False)
        digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()
