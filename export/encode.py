"""Labelled examples as what graphs and calibration take: tokens and label indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from multi_exit.errors import DataError
from multi_exit.text_encoder import EncodedText, TextEncoder
from training.data import LabelledExample

# Names shown in an error; a bundle may have hundreds.
_LABELS_LISTED = 10


def encode_examples(
    encoder: TextEncoder, examples: Sequence[LabelledExample], name: str
) -> list[EncodedText]:
    """Encodes examples as the service would, with a progress bar on a terminal."""
    return [
        encoder.encode(example.text_input)
        for example in tqdm(examples, desc=f"tokenise {name}", unit="text", disable=None)
    ]


def label_indices(
    examples: Sequence[LabelledExample], labels: tuple[str, ...]
) -> NDArray[np.int64]:
    """Index of each example's label by name, int64 [texts]. Raises DataError for another name."""
    index = {label: position for position, label in enumerate(labels)}
    unknown = [example for example in examples if example.label not in index]
    if unknown:
        first, names = unknown[0], {example.label for example in unknown}
        listed = ", ".join(repr(label) for label in labels[:_LABELS_LISTED])
        more = f" and {len(labels) - _LABELS_LISTED} more" if len(labels) > _LABELS_LISTED else ""
        raise DataError(
            f"{first.origin + ': ' if first.origin else ''}the bundle has no label "
            f"{first.label!r} ({len(names)} unknown in all); it has {listed}{more}"
        )
    return np.array([index[example.label] for example in examples], dtype=np.int64)
