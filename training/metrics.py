"""Scores of predicted labels, by scikit-learn."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

MetricName = Literal["accuracy", "f1", "matthews"]


def score(metric: str, labels: NDArray[np.integer], predicted: NDArray[np.integer]) -> float:
    """One number, better when larger; labels and predicted are indices, [texts].

    f1 is that of label 1 for two labels, macro-averaged for more. Raises ValueError for another
    metric.
    """
    if metric == "accuracy":
        return float(accuracy_score(labels, predicted))
    if metric == "matthews":
        return float(matthews_corrcoef(labels, predicted))
    if metric == "f1":
        average = "binary" if max(labels.max(), predicted.max()) <= 1 else "macro"
        return float(f1_score(labels, predicted, average=average, zero_division=0))
    raise ValueError(f"unknown metric {metric!r}")
