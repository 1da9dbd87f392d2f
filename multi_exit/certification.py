"""How far along a path of policies each promise holds: fixed-sequence testing on known outputs.

Per kind, epsilon and class the path is walked from safe to fast and left at the first policy that
fails: no correction for many tests is needed then (Angelopoulos et al., "Learn then Test", 2021).
The path must not have been chosen by the certifying texts (`multi_exit.threshold_path`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multi_exit.betting import accuracy_drop_p_value, best_bet
from multi_exit.binomial import binomial_tail, check_level
from multi_exit.certificate import (
    Certificate,
    CertificateKind,
    accuracy_drop_certificate,
    consistency_certificate,
    expected_disagreement_certificate,
)
from multi_exit.outcome import ExitAnswers, KnownExits, LabelledOutputs
from multi_exit.policy import Policy
from multi_exit.risk_control import controlled, errors_along_path

_Bet = Callable[[int], float | None]


@dataclass(frozen=True, slots=True, eq=False)
class _Walk:
    """How far along the path one promise holds. reached: policies that passed.

    certificate: that of a policy that passed, by its place; made only where it is wanted, since
    its bounds take a search.
    """

    reached: int
    certificate: Callable[[int], Certificate | None]


@dataclass(frozen=True, slots=True)
class _Disagreements:
    """Of one class or all texts (None): disagreements with full depth, one count a policy.

    errors_along_path: those of `multi_exit.risk_control.errors_along_path`.
    """

    label: str | None
    samples: int
    errors: Sequence[int]
    errors_along_path: Sequence[int]


@dataclass(frozen=True, slots=True)
class _SignedLosses:
    """Of one class or all texts (None): right at full depth alone, and here alone, by policy."""

    label: str | None
    samples: int
    losses: Sequence[int]
    gains: Sequence[int]


class Certifier:
    """The certificates that each policy of a path earns."""

    def __init__(
        self,
        path: Sequence[Policy],
        certifying: LabelledOutputs,
        *,
        epsilons: Sequence[float],
        delta: float,
        tuning: LabelledOutputs | None = None,
        classes: Mapping[str, int] | None = None,
    ) -> None:
        """certifying: texts that chose nothing. tuning: other texts, which advise the bets.

        classes: index of each label for which every promise must hold on its own, too. Accuracy is
        certified only where certifying has labels.
        """
        known = ExitAnswers.of(certifying.outputs)
        answers = _answers(path, known)
        full_depth, labels = known.labels[:, -1], certifying.labels
        # Counted once for all epsilons.
        by_full_depth = _disagreements(answers != full_depth, full_depth, classes or {})
        by_label = (
            _signed_losses(answers, full_depth, labels, classes or {}) if labels is not None else []
        )
        tuned = _tuned_counts(path, tuning)
        self._walks: dict[tuple[CertificateKind, float], list[_Walk]] = {}
        for epsilon in sorted(epsilons):
            self._walks["consistency", epsilon] = [
                _consistency(counts, epsilon, delta) for counts in by_full_depth
            ]
            self._walks["expected_disagreement", epsilon] = [
                _expected(counts, epsilon) for counts in by_full_depth
            ]
            if by_label:
                bet = _bet(tuned, epsilon)
                self._walks["accuracy_drop", epsilon] = [
                    _accuracy(counts, epsilon, delta, bet) for counts in by_label
                ]

    @property
    def promises(self) -> tuple[tuple[CertificateKind, float], ...]:
        """Every kind and epsilon that was tested, the smallest epsilon first."""
        return tuple(self._walks)

    def fastest(self, kind: CertificateKind, epsilon: float) -> int | None:
        """Place in the path of the fastest policy with this promise; None for full depth alone.

        The promise then holds for all texts together and for each of the classes.
        """
        reached = min(walk.reached for walk in self._walks[kind, epsilon])
        return reached - 1 if reached else None

    def of(self, index: int) -> tuple[Certificate, ...]:
        """All certificates of the policy at this place of the path.

        A promise that does not hold for each of the classes is not made for all texts either.
        """
        found = [
            walk.certificate(index)
            for walks in self._walks.values()
            if index < min(walk.reached for walk in walks)
            for walk in walks
        ]
        return tuple(certificate for certificate in found if certificate is not None)


def fewest_texts(epsilon: float, delta: float) -> int:
    """Texts that certify `epsilon` if none of them changes its label; fewer never can.

    The least n with (1 - epsilon)^n <= delta, that is log(delta) / log(1 - epsilon) rounded up.
    """
    check_level("epsilon", epsilon)
    check_level("delta", delta)
    fewest = math.ceil(math.log(delta) / math.log1p(-epsilon))
    # The quotient may be off by a rounding where it is a whole number.
    while binomial_tail(0, fewest, epsilon) > delta:
        fewest += 1
    while fewest > 1 and binomial_tail(0, fewest - 1, epsilon) <= delta:
        fewest -= 1
    return fewest


def _answers(path: Sequence[Policy], known: KnownExits) -> NDArray[np.int64]:
    """Index of the label that each policy answers for each text, [policies, texts]."""
    labels = known.labels
    rows = np.arange(len(labels))
    return np.stack([labels[rows, known.exits_taken(policy)] for policy in path])


def _against_full_depth(
    answers: NDArray[np.int64], full_depth: NDArray[np.int64], labels: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Texts right at full depth alone, and right here alone, each [policies, texts]."""
    right, right_at_full_depth = answers == labels, full_depth == labels
    return right_at_full_depth & ~right, right & ~right_at_full_depth


def _groups(
    by: NDArray[np.int64], classes: Mapping[str, int]
) -> list[tuple[str | None, NDArray[np.bool_] | slice]]:
    """All texts, then those of each class; by: a label index for each text."""
    # A slice takes no copy of what is large.
    return [(None, slice(None)), *((name, by == index) for name, index in classes.items())]


def _disagreements(
    disagrees: NDArray[np.bool_], full_depth: NDArray[np.int64], classes: Mapping[str, int]
) -> list[_Disagreements]:
    found = []
    for label, rows in _groups(full_depth, classes):
        group = disagrees[:, rows]
        found.append(
            _Disagreements(
                label, group.shape[1], group.sum(axis=1).tolist(), errors_along_path(group)
            )
        )
    return found


def _signed_losses(
    answers: NDArray[np.int64],
    full_depth: NDArray[np.int64],
    labels: NDArray[np.int64],
    classes: Mapping[str, int],
) -> list[_SignedLosses]:
    lost, gained = _against_full_depth(answers, full_depth, labels)
    return [
        _SignedLosses(
            label,
            lost[:, rows].shape[1],
            lost[:, rows].sum(axis=1).tolist(),
            gained[:, rows].sum(axis=1).tolist(),
        )
        for label, rows in _groups(labels, classes)
    ]


def _passing(passes: Callable[[int], bool], policies: int) -> int:
    """How many policies pass before the first that does not."""
    return next((index for index in range(policies) if not passes(index)), policies)


def _consistency(counts: _Disagreements, epsilon: float, delta: float) -> _Walk:
    errors, samples = counts.errors, counts.samples
    return _Walk(
        _passing(
            lambda index: binomial_tail(errors[index], samples, epsilon) <= delta, len(errors)
        ),
        lambda index: consistency_certificate(
            errors[index], samples, epsilon=epsilon, delta=delta, label=counts.label
        ),
    )


def _expected(counts: _Disagreements, epsilon: float) -> _Walk:
    fastest = controlled(counts.errors_along_path, counts.samples, epsilon)
    return _Walk(
        0 if fastest is None else fastest + 1,
        lambda index: expected_disagreement_certificate(
            counts.errors_along_path[index], counts.samples, epsilon=epsilon, label=counts.label
        ),
    )


def _accuracy(counts: _SignedLosses, epsilon: float, delta: float, bet: _Bet) -> _Walk:
    losses, gains, samples = counts.losses, counts.gains, counts.samples

    def passes(index: int) -> bool:
        p_value = accuracy_drop_p_value(
            losses[index], gains[index], samples, epsilon, bet=bet(index)
        )
        return p_value <= delta

    return _Walk(
        _passing(passes, len(losses)),
        lambda index: accuracy_drop_certificate(
            losses[index],
            gains[index],
            samples,
            epsilon=epsilon,
            delta=delta,
            bet=bet(index),
            label=counts.label,
        ),
    )


def _tuned_counts(
    path: Sequence[Policy], tuning: LabelledOutputs | None
) -> tuple[list[int], list[int], int] | None:
    """Losses and gains of each policy on the tuning texts, and how many those are."""
    if tuning is None or tuning.labels is None or len(tuning) == 0:
        return None
    known = ExitAnswers.of(tuning.outputs)
    lost, gained = _against_full_depth(_answers(path, known), known.labels[:, -1], tuning.labels)
    return lost.sum(axis=1).tolist(), gained.sum(axis=1).tolist(), len(tuning)


def _bet(tuned: tuple[list[int], list[int], int] | None, epsilon: float) -> _Bet:
    """The bet for each policy that texts apart from the certifying ones advise."""
    if tuned is None:
        return lambda index: None
    losses, gains, samples = tuned
    # Only policies that are tested need one, and each search takes a while.
    found: dict[tuple[int, int], float | None] = {}

    def bet(index: int) -> float | None:
        counts = losses[index], gains[index]
        if counts not in found:
            found[counts] = best_bet(*counts, samples, epsilon)
        return found[counts]

    return bet
