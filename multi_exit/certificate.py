"""What can be promised about an operating point, from a calibration split, and how surely.

The only assumption: calibration texts and live texts are drawn independently from one
distribution, and the calibration split was seen by nothing else. A per-class certificate (`label`)
assumes it of that class alone, and is a statement of its own: ten of them may fail separately.
"""

from dataclasses import dataclass
from typing import Literal

from multi_exit.betting import accuracy_drop_p_value, accuracy_drop_upper_bound
from multi_exit.binomial import binomial_tail, binomial_upper_bound, check_level
from multi_exit.risk_control import expected_risk_bound

CertificateKind = Literal["consistency", "accuracy_drop", "expected_disagreement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One statistical statement about one operating point.

    kind: "consistency" (the share of texts with another label than at full depth), "accuracy_drop"
    (accuracy at full depth minus here), "expected_disagreement" (like consistency, but on average
    over calibration splits instead of with confidence).
    epsilon: what is promised not to be exceeded. delta: the risk that it is all the same; None for
    expected_disagreement. samples: the texts counted. errors: those with another label than at
    full depth; for accuracy_drop, those right at full depth and wrong here. gains: for
    accuracy_drop, those wrong at full depth and right here. label: where not None, only texts that
    full depth gives this label (accuracy_drop: whose true label this is) were counted.
    p_value: of the hypothesis that epsilon is exceeded; None where there is no test.
    upper_bound: the smallest epsilon that the same data could promise; a negative one is a gain.
    """

    kind: CertificateKind
    epsilon: float
    delta: float | None
    samples: int
    errors: int
    gains: int | None = None
    label: str | None = None
    p_value: float | None
    upper_bound: float
    statement: str


def consistency_certificate(
    errors: int, samples: int, *, epsilon: float, delta: float, label: str | None = None
) -> Certificate | None:
    """Certificate that at most `epsilon` of texts get another label than at full depth.

    Exact binomial test of "the share is above epsilon"; None where it is not rejected at `delta`.
    Raises ValueError for counts or levels that make no sense.
    """
    p_value = binomial_tail(errors, samples, epsilon)
    check_level("delta", delta)
    if p_value > delta:
        return None
    return Certificate(
        kind="consistency",
        epsilon=epsilon,
        delta=delta,
        samples=samples,
        errors=errors,
        label=label,
        p_value=p_value,
        upper_bound=binomial_upper_bound(errors, samples, delta),
        statement=(
            f"At most {_percent(epsilon)} of texts like the {_by_full_depth(samples, label)} get "
            f"another label than at full depth, with {_percent(1 - delta)} confidence "
            f"({errors:,} did)."
        ),
    )


def accuracy_drop_certificate(
    losses: int,
    gains: int,
    samples: int,
    *,
    epsilon: float,
    delta: float,
    bet: float | None = None,
    label: str | None = None,
) -> Certificate | None:
    """Certificate that accuracy is lower than at full depth by less than `epsilon`.

    losses, gains: texts right at full depth alone, and here alone. Betting test of "the drop is
    epsilon or more" (`multi_exit.betting`); None where it is not rejected at `delta`. bet: a bet
    chosen on other texts. Raises ValueError for counts or levels that make no sense.
    """
    check_level("epsilon", epsilon)
    p_value = accuracy_drop_p_value(losses, gains, samples, epsilon, bet=bet)
    check_level("delta", delta)
    if p_value > delta:
        return None
    of_class = "" if label is None else f" of class {label!r}"
    return Certificate(
        kind="accuracy_drop",
        epsilon=epsilon,
        delta=delta,
        samples=samples,
        errors=losses,
        gains=gains,
        label=label,
        p_value=p_value,
        upper_bound=accuracy_drop_upper_bound(losses, gains, samples, delta, bet=bet),
        statement=(
            f"On texts like the {samples:,} calibration texts{of_class}, accuracy is lower than at "
            f"full depth by less than {100 * epsilon:.12g} points, with {_percent(1 - delta)} "
            f"confidence ({losses:,} of them lost, {gains:,} gained)."
        ),
    )


def expected_disagreement_certificate(
    errors: int, samples: int, *, epsilon: float, label: str | None = None
) -> Certificate | None:
    """Certificate that on average at most `epsilon` of texts get another label than at full depth.

    On average over calibration splits too: one split may promise too much, another too little.
    Weaker than consistency, and possible with far fewer texts: 1 / epsilon - 1 without an error.
    Conformal risk control; None where it does not allow this point. Where the point was chosen
    along a path, `errors` must be those of `multi_exit.risk_control.errors_along_path`, which also
    count what slower points of the path get wrong. Raises ValueError for counts or levels that
    make no sense.
    """
    check_level("epsilon", epsilon)
    bound = expected_risk_bound(errors, samples)
    if bound > epsilon:
        return None
    return Certificate(
        kind="expected_disagreement",
        epsilon=epsilon,
        delta=None,
        samples=samples,
        errors=errors,
        label=label,
        p_value=None,
        upper_bound=bound,
        statement=(
            f"On average over calibrations, at most {_percent(epsilon)} of texts like the "
            f"{_by_full_depth(samples, label)} get another label than at full depth "
            f"({errors:,} did)."
        ),
    )


def _by_full_depth(samples: int, label: str | None) -> str:
    return f"{samples:,} calibration texts" + (
        f" that full depth labels {label!r}" if label is not None else ""
    )


def _percent(share: float) -> str:
    """A share as a percentage with all its digits: a rounded one could promise too much."""
    return f"{100 * share:.12g}%"
