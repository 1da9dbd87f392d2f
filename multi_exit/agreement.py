"""How likely an exit is to differ from full depth, given its entropy: a smooth estimate.

Few texts differ, so counts by exit and entropy are noisy. A logistic regression on the logarithm
of entropy needs few of them: first one slope for all exits together, then one an exit, drawn
towards the common one. Slopes of their own pay where exits differ in how much their entropy tells:
2 to 7 % fewer layers on SST-2 at the same disagreement, nothing on Banking77 and CLINC150
(docs/results/contracts.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multi_exit.outcome import KnownExits

# Entropies below this are alike: all sure.
_SMALLEST_ENTROPY = 1e-4
# Draws intercepts together and the slope to 1 where a few texts say little.
_PULL = 0.1
# Draw the slope and the intercept of each exit to those of the common fit.
_SLOPE_PULL, _INTERCEPT_PULL = 0.3, 0.01
_STEPS = 50


@dataclass(frozen=True, slots=True, eq=False)
class DisagreementModel:
    """P(another label than full depth) at exit m and entropy e: 1 / (1 + exp(-(a_m + b_m log e))).

    intercepts [exits - 1]: a_m; slopes [exits - 1]: b_m >= 0. The last exit never differs from
    itself.
    """

    intercepts: NDArray[np.float64]
    slopes: NDArray[np.float64]

    def risk(self, entropy: NDArray[np.floating]) -> NDArray[np.float64]:
        """entropy [texts, exits] -> probability of another label than full depth, same shape."""
        feature = _feature(entropy[:, :-1])
        risks = _sigmoid(self.intercepts + self.slopes * feature)
        return np.concatenate([risks, np.zeros((len(entropy), 1))], axis=1)


def fit_disagreement(outputs: KnownExits) -> DisagreementModel:
    """Fits the model by penalised maximum likelihood (Newton's method).

    outputs: every exit's answers on texts that no certificate will use. Raises ValueError for a
    single exit, which has nothing to differ from.
    """
    labels = outputs.labels
    exits = labels.shape[1]
    if exits < 2:
        raise ValueError("one exit alone cannot differ from full depth")
    differs = (labels[:, :-1] != labels[:, -1:]).astype(np.float64)
    feature = _feature(outputs.entropy[:, :-1])
    # Parameters: intercepts, then the slope. Start from the overall share.
    share = (differs.sum() + 0.5) / (differs.size + 1.0)
    start = float(np.log(share / (1.0 - share)))
    parameters = np.append(np.full(exits - 1, start), 1.0)
    for _ in range(_STEPS):
        chance = _sigmoid(parameters[:-1] + parameters[-1] * feature)
        residual, weight = differs - chance, chance * (1.0 - chance)
        centre = parameters[:-1].mean()
        gradient = np.append(residual.sum(axis=0), (residual * feature).sum())
        gradient[:-1] -= _PULL * (parameters[:-1] - centre)
        gradient[-1] -= _PULL * (parameters[-1] - 1.0)
        curvature = np.zeros((exits, exits))
        curvature[np.arange(exits - 1), np.arange(exits - 1)] = weight.sum(axis=0) + _PULL
        curvature[:-1, -1] = curvature[-1, :-1] = (weight * feature).sum(axis=0)
        curvature[-1, -1] = (weight * feature**2).sum() + _PULL
        step = np.linalg.solve(curvature + 1e-9 * np.eye(exits), gradient)
        # Newton may overshoot where the classes are separable.
        parameters = parameters + np.clip(step, -2.0, 2.0)
        if np.abs(step).max() < 1e-9:
            break
    return _with_own_slopes(differs, feature, parameters[:-1], float(parameters[-1]))


def _with_own_slopes(
    differs: NDArray[np.float64],
    feature: NDArray[np.float64],
    common_intercepts: NDArray[np.float64],
    common_slope: float,
) -> DisagreementModel:
    """Newton's method for each exit by itself, from the common fit and drawn towards it."""
    intercepts, slopes = common_intercepts, np.full_like(common_intercepts, common_slope)
    for _ in range(_STEPS):
        chance = _sigmoid(intercepts + slopes * feature)
        residual, weight = differs - chance, chance * (1.0 - chance)
        by_intercept = residual.sum(axis=0) - _INTERCEPT_PULL * (intercepts - common_intercepts)
        by_slope = (residual * feature).sum(axis=0) - _SLOPE_PULL * (slopes - common_slope)
        # The curvature of one exit is a 2 x 2 matrix, inverted in place.
        first = weight.sum(axis=0) + _INTERCEPT_PULL
        mixed = (weight * feature).sum(axis=0)
        second = (weight * feature**2).sum(axis=0) + _SLOPE_PULL
        determinant = first * second - mixed**2
        steps = np.stack(
            [second * by_intercept - mixed * by_slope, first * by_slope - mixed * by_intercept]
        ) / np.maximum(determinant, 1e-12)
        steps = np.clip(steps, -2.0, 2.0)
        intercepts, slopes = intercepts + steps[0], slopes + steps[1]
        if np.abs(steps).max() < 1e-9:
            break
    return DisagreementModel(intercepts, np.maximum(slopes, 0.0))


def _feature(entropy: NDArray[np.floating]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = np.log(
        np.maximum(np.asarray(entropy, dtype=np.float64), _SMALLEST_ENTROPY)
    )
    return result


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = 0.5 * (1.0 + np.tanh(0.5 * values))
    return result
