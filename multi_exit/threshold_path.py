"""Paths of policies from safe to fast, along which certificates are tested.

Fixed-sequence testing (Angelopoulos et al., "Learn then Test", 2021) holds only for an order that
the certifying texts did not choose: the constant path is fixed beforehand, the path with a
threshold for every exit is chosen on other texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from multi_exit.agreement import fit_disagreement
from multi_exit.outcome import KnownExits
from multi_exit.policy import Policy

_GRID = tuple(float(f"{threshold:.4g}") for threshold in np.geomspace(0.001, 0.999, num=120))
# Price of full depth in disagreements: from almost free to dearer than a wrong answer.
_PRICES = np.geomspace(2e-5, 2.0, num=120)
_SWEEPS = 4


def constant_path(exits: int, also: Sequence[float] = ()) -> tuple[Policy, ...]:
    """One threshold for all exits, rising over a fixed grid and the thresholds in `also`."""
    return tuple(Policy.constant(threshold, exits) for threshold in sorted({*_GRID, *also}))


def per_exit_path(outputs: KnownExits, costs: Sequence[float]) -> tuple[Policy, ...]:
    """A threshold for every exit, none of which falls along the path.

    Each policy minimises, on the texts given, expected disagreement + price * cost / full cost,
    one price a policy, by coordinate descent over exits; disagreement is the smooth estimate of
    `multi_exit.agreement`. outputs: texts that no certificate will use. costs: cumulative cost of
    leaving at each exit, ascending (layers or seconds).
    """
    exits = outputs.entropy.shape[1]
    if exits < 2:
        return (Policy.constant(0.0, exits),)
    entropy = np.asarray(outputs.entropy, dtype=np.float64)
    risk = fit_disagreement(outputs).risk(entropy)
    share = np.asarray(costs, dtype=np.float64) / costs[-1]
    orders = [np.argsort(entropy[:, index], kind="stable") for index in range(exits - 1)]
    thresholds = np.zeros(exits)
    path: list[Policy] = []
    for price in _PRICES:
        found = _optimise(entropy, orders, risk + price * share, thresholds.copy())
        # Rising thresholds keep the path's order from safe to fast.
        thresholds = np.maximum(thresholds, found)
        policy = Policy(tuple(float(f"{value:.4g}") for value in thresholds))
        if not path or policy != path[-1]:
            path.append(policy)
    return tuple(path)


def _optimise(
    entropy: NDArray[np.float64],
    orders: Sequence[NDArray[np.int64]],
    loss: NDArray[np.float64],
    thresholds: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Thresholds that lower the mean loss of the exit taken; loss [texts, exits].

    orders: rows by rising entropy, one array an exit but the last; sorted once, since they do not
    change from price to price.
    """
    for _ in range(_SWEEPS):
        before = thresholds.copy()
        stays = entropy[:, :-1] >= thresholds[:-1]
        # Whether a text reaches each exit; thresholds before it change only after its own.
        reached = np.logical_and.accumulate(
            np.pad(stays, ((0, 0), (1, 0)), constant_values=True), 1
        )
        going_on = loss[:, -1]
        for index, order in reversed(list(enumerate(orders))):
            rows = order[reached[order, index]]
            thresholds[index] = _best_threshold(
                entropy[rows, index], loss[rows, index], going_on[rows]
            )
            leaves = entropy[:, index] < thresholds[index]
            going_on = np.where(leaves, loss[:, index], going_on)
        if np.array_equal(before, thresholds):
            break
    return thresholds


def _best_threshold(
    entropy: NDArray[np.float64], leaving: NDArray[np.float64], going_on: NDArray[np.float64]
) -> float:
    """The threshold with the least total loss; 0 (nobody leaves) where leaving never pays."""
    if len(entropy) == 0:
        return 0.0
    order = np.argsort(entropy, kind="stable")
    sorted_entropy = entropy[order]
    saved = np.cumsum((going_on - leaving)[order])
    # Equal entropies leave together: only the last of them may be the end.
    ends = np.append(sorted_entropy[1:] > sorted_entropy[:-1], True)
    saved = np.where(ends, saved, -np.inf)
    best = int(saved.argmax())
    if saved[best] <= 0.0:
        return 0.0
    if best + 1 == len(sorted_entropy):
        # Everybody leaves; beyond what was seen nothing is known.
        return min(1.0, float(np.nextafter(sorted_entropy[best], 2.0)) * 1.001)
    return float(0.5 * (sorted_entropy[best] + sorted_entropy[best + 1]))
