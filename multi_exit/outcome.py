"""What a policy would do on texts whose every exit is known: where they leave, what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from multi_exit.errors import PolicyError
from multi_exit.policy import Policy


class KnownExits(Protocol):
    """What policies and certificates look at: every exit's label and entropy, not its logits."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """Index of the likeliest label, [texts, exits]."""
        ...

    @property
    def entropy(self) -> NDArray[np.float32]:
        """Normalised, [texts, exits]."""
        ...

    def exits_taken(self, policy: Policy) -> NDArray[np.int64]:
        """Index of the exit at which each text leaves under the policy, [texts]."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ExitAnswers:
    """What every exit answered, where logits were not kept: labels and entropy [texts, exits]."""

    labels: NDArray[np.int64]
    entropy: NDArray[np.float32]

    @classmethod
    def of(cls, outputs: KnownExits) -> ExitAnswers:
        """The answers alone. With logits, labels are found anew at every look; here once."""
        return cls(outputs.labels, outputs.entropy)

    def rows(self, chosen: NDArray[np.integer] | NDArray[np.bool_]) -> ExitAnswers:
        """Some of the texts."""
        return ExitAnswers(self.labels[chosen], self.entropy[chosen])

    def exits_taken(self, policy: Policy) -> NDArray[np.int64]:
        """Index of the exit at which each text leaves under the policy, [texts].

        Raises PolicyError for a policy of another number of exits.
        """
        return _exits_taken(self.entropy, policy)


@dataclass(frozen=True, slots=True, eq=False)
class ExitOutputs:
    """What every exit says about every text. logits [texts, exits, K], entropy [texts, exits].

    label_distance [texts, exits]: to the nearest label embedding (`confidence.label_distance`);
    None where representations are not at hand, as with an exported bundle.
    """

    logits: NDArray[np.float32]
    entropy: NDArray[np.float32]
    label_distance: NDArray[np.float64] | None = None

    @property
    def labels(self) -> NDArray[np.int64]:
        """Index of the likeliest label, [texts, exits]."""
        labels: NDArray[np.int64] = self.logits.argmax(axis=2)
        return labels

    def exits_taken(self, policy: Policy) -> NDArray[np.int64]:
        """Index of the exit at which each text leaves under the policy, [texts].

        Raises PolicyError for a policy of another number of exits.
        """
        return _exits_taken(self.entropy, policy)


@dataclass(frozen=True, slots=True, eq=False)
class LabelledOutputs:
    """What every exit says about some texts, and their labels, int64 [texts], if known."""

    outputs: KnownExits
    labels: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.outputs.entropy)

    def rows(self, chosen: NDArray[np.integer] | NDArray[np.bool_]) -> LabelledOutputs:
        """Some of the texts; of their outputs the answers stay."""
        answers = ExitAnswers.of(self.outputs).rows(chosen)
        return LabelledOutputs(answers, None if self.labels is None else self.labels[chosen])


@dataclass(frozen=True, slots=True, eq=False)
class PolicyOutcome:
    """One policy on one set of texts.

    taken: index of the exit each text left at, [texts]. answered: index of its label, [texts].
    agreement: share with the label of full depth. speedup: all layers / average_layers.
    """

    taken: NDArray[np.int64]
    answered: NDArray[np.int64]
    average_layers: float
    speedup: float
    agreement: float
    disagreements: int

    def accuracy(self, labels: NDArray[np.int64]) -> float:
        """Share of texts whose answer is the true label; labels int64 [texts]."""
        return float((self.answered == labels).mean())


def policy_outcome(outputs: KnownExits, policy: Policy, exits: tuple[int, ...]) -> PolicyOutcome:
    """Applies a policy to known outputs; exits are the exit layers, ascending, the last deepest."""
    predicted = outputs.labels
    taken = outputs.exits_taken(policy)
    answered = predicted[np.arange(len(taken)), taken]
    differ = answered != predicted[:, -1]
    average_layers = float(np.asarray(exits)[taken].mean())
    return PolicyOutcome(
        taken=taken,
        answered=answered,
        average_layers=average_layers,
        speedup=exits[-1] / average_layers,
        agreement=float(1.0 - differ.mean()),
        disagreements=int(differ.sum()),
    )


def _exits_taken(entropy: NDArray[np.float32], policy: Policy) -> NDArray[np.int64]:
    if len(policy.thresholds) != entropy.shape[1]:
        raise PolicyError(
            f"the policy has {len(policy.thresholds)} exits, the texts have "
            f"{entropy.shape[1]} entropies"
        )
    leaves = entropy < np.asarray(policy.thresholds)
    leaves[:, policy.deepest :] = True
    exits: NDArray[np.int64] = leaves.argmax(axis=1)
    return exits
