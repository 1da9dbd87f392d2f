"""Scores of predicted labels, by scikit-learn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from training.data.config import MetricName


def score(
    metric: MetricName,
    labels: NDArray[np.integer],
    predicted: NDArray[np.integer],
    *,
    classes: int,
) -> float:
    """One number, better when larger; labels and predicted are indices below `classes`, [texts].

    f1 is that of label 1 where there are two labels, as GLUE counts it, and the mean over the
    labels that occur (macro) where there are more.
    """
    if metric == "accuracy":
        return float(accuracy_score(labels, predicted))
    if metric == "matthews":
        return float(matthews_corrcoef(labels, predicted))
    average = "binary" if classes == 2 else "macro"
    return float(f1_score(labels, predicted, average=average, zero_division=0))
