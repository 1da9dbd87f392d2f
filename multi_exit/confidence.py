"""How sure an exit is: probabilities, normalised entropy, and other measures of doubt.

Each measure of doubt lies in [0, 1], 0 for a sure exit; a text leaves where it is strictly below a
threshold. Serving uses entropy: the exported graphs compute the same in float32 (see
`export/stage_module.py`); these float64 versions are the reference and serve offline use.
"""

import numpy as np
from numpy.typing import NDArray


def log_probabilities(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Logarithm of softmax(logits), by a shifted log-sum-exp.

    logits [batch, K], K >= 2. Returns [batch, K], all <= 0.
    Raises ValueError for another shape, K < 2, or a logit that is not finite: NaN < threshold is
    False, so a broken row would run to full depth and nobody would notice.
    """
    values = np.asarray(logits, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 2:
        raise ValueError(f"logits must be [batch, K] with K >= 2, not {values.shape}")
    if not np.isfinite(values).all():
        rows = np.flatnonzero(~np.isfinite(values).all(axis=1))
        raise ValueError(f"logits must be finite; rows {rows[:10].tolist()} are not")
    shifted = values - values.max(axis=1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def probabilities(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Softmax of logits [batch, K], K >= 2. Returns [batch, K]; each row sums to 1."""
    return np.exp(log_probabilities(logits))


def normalised_entropy(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Entropy of softmax(logits) divided by log K: H(p) / log K.

    logits [batch, K], K >= 2. Returns [batch], in [0, 1], no unit, comparable between label sets
    of any size. Raises ValueError as `log_probabilities` does.
    """
    log_p = log_probabilities(logits)
    entropy = -(np.exp(log_p) * log_p).sum(axis=1) / np.log(log_p.shape[1])
    # Rounding may step over either end by some 1e-16.
    result: NDArray[np.float64] = np.clip(entropy, 0.0, 1.0)
    return result


def maximum_doubt(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """1 minus the largest probability, scaled to reach 1 at uniform: (1 - max p) K / (K - 1).

    logits [batch, K], K >= 2. Returns [batch]. Raises ValueError as `log_probabilities` does.
    """
    chances = probabilities(logits)
    classes = chances.shape[1]
    result: NDArray[np.float64] = (1.0 - chances.max(axis=1)) * classes / (classes - 1)
    return np.clip(result, 0.0, 1.0)


def margin_doubt(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """1 minus the difference between the two largest probabilities.

    logits [batch, K], K >= 2. Returns [batch]. Raises ValueError as `log_probabilities` does.
    """
    largest = np.sort(probabilities(logits), axis=1)[:, -2:]
    result: NDArray[np.float64] = np.clip(1.0 - (largest[:, 1] - largest[:, 0]), 0.0, 1.0)
    return result


def label_distance(
    representations: NDArray[np.floating], label_embeddings: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Cosine distance to the nearest label embedding, halved: (1 - max_k cos(h, l_k)) / 2.

    representations [batch, hidden], label_embeddings [K, hidden]. Returns [batch]. Aligned
    contrastive learning draws samples to the embedding of their label. A zero vector is at 0.5.
    """
    left = _unit(np.asarray(representations, dtype=np.float64))
    right = _unit(np.asarray(label_embeddings, dtype=np.float64))
    result: NDArray[np.float64] = np.clip((1.0 - (left @ right.T).max(axis=1)) / 2.0, 0.0, 1.0)
    return result


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    result: NDArray[np.float64] = vectors / np.where(norms > 0, norms, 1.0)
    return result
