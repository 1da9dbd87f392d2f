"""Other rules than entropy for where a text leaves, compared on texts whose every exit is known.

Serving uses entropy. These are the rules of the literature, to be judged on the same checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from multi_exit.confidence import margin_doubt, maximum_doubt
from multi_exit.outcome import ExitOutputs

_THRESHOLDS_A_RULE = 40


def exits_by_doubt(doubt: NDArray[np.floating], threshold: float) -> NDArray[np.int64]:
    """Index of the first exit whose doubt is strictly below the threshold, else the last.

    doubt [texts, exits] -> [texts].
    """
    leaves = doubt < threshold
    leaves[:, -1] = True
    exits: NDArray[np.int64] = leaves.argmax(axis=1)
    return exits


def exits_by_patience(labels: NDArray[np.integer], patience: int) -> NDArray[np.int64]:
    """Index of the first exit that repeats its predecessor's label for the `patience`-th time.

    labels [texts, exits], the likeliest label of every exit -> [texts]; patience >= 1. The last
    exit where none does. Source: Zhou et al. 2020, "BERT loses patience" (PABEE).
    """
    texts, exits = labels.shape
    agreed = np.zeros(texts, dtype=np.int64)
    taken = np.full(texts, exits - 1, dtype=np.int64)
    undecided = np.ones(texts, dtype=bool)
    for index in range(1, exits):
        agreed = np.where(labels[:, index] == labels[:, index - 1], agreed + 1, 0)
        leaving = undecided & (agreed >= patience)
        taken[leaving] = index
        undecided &= ~leaving
    return taken


def exits_along_rules(outputs: ExitOutputs) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Rule by rule, from safe to fast, the index of the exit that each text leaves at, [texts].

    entropy, maximum, margin, patience, and label_distance where the distances are known. The
    thresholds of a rule are quantiles of its own doubt, so that each gets an even chance.
    """
    texts, exits, classes = outputs.logits.shape
    flat = outputs.logits.reshape(texts * exits, classes)
    doubts: dict[str, NDArray[np.floating]] = {
        "entropy": outputs.entropy,
        "maximum": maximum_doubt(flat).reshape(texts, exits),
        "margin": margin_doubt(flat).reshape(texts, exits),
    }
    if outputs.label_distance is not None:
        doubts["label_distance"] = outputs.label_distance
    for rule, doubt in doubts.items():
        levels = np.linspace(0.0, 1.0, _THRESHOLDS_A_RULE)
        for threshold in np.quantile(doubt[:, :-1], levels) if exits > 1 else ():
            yield rule, exits_by_doubt(doubt, float(threshold))
        yield rule, exits_by_doubt(doubt, float("inf"))
    for patience in range(exits, 0, -1):
        yield "patience", exits_by_patience(outputs.labels, patience)
