"""How fast a policy may be for the expected disagreement to stay within epsilon.

Conformal risk control: Angelopoulos, Bates, Fisch, Lei and Schuster 2022. Along a path of policies
from safe to fast, fixed before the calibration texts were seen, the fastest one whose bound
(n * risk + 1) / (n + 1) is at most epsilon disagrees with full depth on at most epsilon of texts,
on average over calibration texts and the next text together.

Assumptions: calibration texts and the next text are exchangeable, and for every text the loss does
not fall along the path. Disagreement can fall: a text may leave early with another label and, at a
looser threshold, still earlier with the right one. `errors_along_path` therefore counts a text from
the first policy that gets it wrong, and with its counts the promise is exact. A running maximum of
plain counts alone makes it hold only as the number of texts grows.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from multi_exit.binomial import check_level


def errors_along_path(disagrees: NDArray[np.bool_]) -> tuple[int, ...]:
    """For each policy, texts with another label than at full depth under it or a slower one.

    disagrees [policies, texts], policies from safe to fast.
    """
    return tuple(int(count) for count in np.logical_or.accumulate(disagrees, axis=0).sum(axis=1))


def controlled(errors_along_path: Sequence[int], samples: int, epsilon: float) -> int | None:
    """Index of the fastest policy whose expected disagreement is at most epsilon; None for none.

    errors_along_path: a count a policy, from safe to fast, best from the function of that name.
    The risk of a policy is the largest one up to it, so the first that is too large ends the path,
    whatever follows. None calls for full depth, which never disagrees.
    Raises ValueError for counts or an epsilon that make no sense.
    """
    check_level("epsilon", epsilon)
    fastest = None
    for index, errors in enumerate(errors_along_path):
        if expected_risk_bound(errors, samples) > epsilon:
            break
        fastest = index
    return fastest


def expected_risk_bound(errors: int, samples: int) -> float:
    """(errors + 1) / (samples + 1): the smallest epsilon that this count lets through."""
    if not 0 <= errors <= samples:
        raise ValueError(f"errors must lie in 0..samples; got {errors} of {samples}")
    return (errors + 1) / (samples + 1)
