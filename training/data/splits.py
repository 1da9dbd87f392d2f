"""Reads a task and splits it into training, validation, calibration and test texts."""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from multi_exit.errors import DataError
from training.data.config import DataConfig, MetricName
from training.data.example import LabelledExample
from training.data.glue import FORMATS, read_glue
from training.data.hold_out import hold_out
from training.data.hub import read_dataset
from training.data.labels import check_labels, label_order
from training.data.tables import read_table

logger = logging.getLogger(__name__)
_EVALUATED = ("validation", "calibration", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """Texts of one task. labels: names in the order of the classifier's rows.

    metrics: what the task reports; the first chooses the best epoch. Calibration and test texts
    are never seen by training, nor chosen by.
    """

    labels: tuple[str, ...]
    train: tuple[LabelledExample, ...]
    validation: tuple[LabelledExample, ...]
    calibration: tuple[LabelledExample, ...]
    test: tuple[LabelledExample, ...]
    metrics: tuple[MetricName, ...]

    @property
    def metric(self) -> MetricName:
        return self.metrics[0]

    @property
    def takes_pairs(self) -> bool:
        return self.train[0].text_pair is not None

    @property
    def fingerprints(self) -> dict[str, str]:
        """SHA-256 of each split's texts and labels, in order; only splits that hold texts."""
        return {
            name: _fingerprint(getattr(self, name))
            for name in ("train", *_EVALUATED)
            if getattr(self, name)
        }


def load_splits(config: DataConfig) -> Splits:
    """Reads and splits what [data] names.

    Raises DataError that names file and row for anything that cannot be used: among others an
    evaluation label that training does not know, and training texts of one class only.
    """
    train = _read(config, "train")
    given = {name: _read(config, name) for name in _EVALUATED if _is_given(config, name)}
    labels = label_order(config, train)
    for examples in (train, *given.values()):
        check_labels(examples, labels)
    train = _without(train, given.get("calibration", []), "training")
    shares = {
        name: share
        for name in _EVALUATED
        if isinstance(share := getattr(config, name), float) and share > 0
    }
    kept, held_out = hold_out(train, shares, config.split_seed)
    if config.train_limit is not None and config.train_limit < len(kept):
        # In the order of the file, so that the limit alone decides which texts there are.
        drawn = random.Random(config.split_seed).sample(range(len(kept)), config.train_limit)
        kept = [kept[index] for index in sorted(drawn)]
    if len({example.label for example in kept}) < 2:
        source = config.train or config.folder or config.dataset
        raise DataError(
            f"{source}: {len(kept)} training texts of one label only; a classifier needs two labels"
        )
    found = {**given, **held_out}
    # The best epoch must not be chosen by texts that calibrate, either.
    found["validation"] = _without(
        found.get("validation", []), found.get("calibration", []), "validation"
    )
    return Splits(
        labels=labels,
        train=tuple(kept),
        validation=tuple(found["validation"]),
        calibration=tuple(found.get("calibration", ())),
        test=tuple(found.get("test", ())),
        metrics=_metrics(config),
    )


def _is_given(config: DataConfig, split: str) -> bool:
    """Whether a split has texts of its own, instead of a share of the training texts."""
    named = getattr(config, split)
    # A GLUE task brings an evaluation file, whose labels are public.
    from_glue = split == "test" and named is None and config.folder is not None
    return isinstance(named, Path) or from_glue


def _read(config: DataConfig, split: str) -> list[LabelledExample]:
    named: Path | None = getattr(config, split)
    if config.glue is not None:
        default = "train.tsv" if split == "train" else FORMATS[config.glue].dev
        return read_glue(named or (config.folder or Path()) / default, config.glue)
    if config.dataset is not None and (named is None or not named.suffix):
        return read_dataset(config, str(named or split))
    assert named is not None, "only called for a split that is named"
    return read_table(
        named,
        text_column=config.text_column,
        label_column=config.label_column,
        text_pair_column=config.text_pair_column,
    )


def _metrics(config: DataConfig) -> tuple[MetricName, ...]:
    own: tuple[MetricName, ...] = FORMATS[config.glue].metrics if config.glue else ("accuracy",)
    if config.metric is None:
        return own
    return (config.metric, *(metric for metric in own if metric != config.metric))


def _without(
    examples: list[LabelledExample], calibration: Sequence[LabelledExample], name: str
) -> list[LabelledExample]:
    """Texts that are not among the calibration texts: nothing may have seen those."""
    unseen = {example.text_input for example in calibration}
    kept = [example for example in examples if example.text_input not in unseen]
    if len(kept) < len(examples):
        logger.warning(
            "%d %s texts are among the calibration texts too; %s leaves them out",
            len(examples) - len(kept),
            name,
            name,
        )
    return kept


def _fingerprint(examples: Sequence[LabelledExample]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        line = json.dumps([example.text, example.text_pair, example.label], ensure_ascii=False)
        digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()
