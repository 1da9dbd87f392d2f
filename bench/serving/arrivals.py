"""When requests arrive: a Poisson process, the same for the same seed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def poisson_arrivals(rate: float, seconds: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Ascending arrival times in [0, seconds), `rate` a second on average, of independent clients.

    Exponential gaps one after another, so the number of arrivals varies as well.
    Raises ValueError for a rate or a time that is not above 0.
    """
    if not (rate > 0 and math.isfinite(rate) and seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"rate and seconds must be above 0; got {rate} and {seconds}")
    parts = [np.zeros(0)]
    last = 0.0
    while last < seconds:
        # About as many as are missing, and some more: seldom a second turn.
        expected = rate * (seconds - last)
        count = math.ceil(expected + 4 * math.sqrt(expected) + 10)
        parts.append(last + np.cumsum(rng.exponential(1 / rate, count)))
        last = float(parts[-1][-1])
    arrivals = np.concatenate(parts)
    return arrivals[arrivals < seconds]
