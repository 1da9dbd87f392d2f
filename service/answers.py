"""What a row comes to, and the JSON document that a request is answered with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multi_exit.confidence import probabilities
from service.errors import DeadlineMissed, NotFinite, ServiceError, StageFailed, problem_of
from service.policies import ResolvedPolicy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExitPassed:
    """What one exit said about one row. logits [K]."""

    exit_index: int  # counts from 0
    entropy: float
    logits: NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowAnswer:
    """Where a row left and what it was answered.

    probabilities [K]. passed: every exit on the way, the answering one included, where asked for.
    wait_seconds: between admission and answer, less compute_seconds, the time its stages took.
    cut_short: its deadline, not its policy, made it leave here.
    """

    exit_index: int  # counts from 0
    entropy: float
    probabilities: NDArray[np.float64]
    passed: tuple[ExitPassed, ...]
    wait_seconds: float
    compute_seconds: float
    cut_short: bool = False


RowOutcome = RowAnswer | StageFailed | NotFinite | DeadlineMissed


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerShape:
    """What all answers of a bundle share."""

    labels: tuple[str, ...]
    exits: tuple[int, ...]  # exit layers
    layers: int
    bundle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Whether an input was cut to fit. pair: None where it is not a pair."""

    text: bool
    pair: bool | None


def answer_document(
    outcomes: Sequence[RowOutcome],
    cuts: Sequence[Cut],
    policy: ResolvedPolicy,
    shape: AnswerShape,
    *,
    top_k: int | None,
    explain: bool,
) -> dict[str, Any]:
    """The body of a 200. Raises the first row's error where no row has an answer."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, ServiceError)]
    if len(failures) == len(outcomes):
        raise failures[0]
    return {
        "results": [
            {"error": problem_of(outcome).document()}
            if isinstance(outcome, ServiceError)
            else _result(outcome, cut, shape, top_k, explain)
            for outcome, cut in zip(outcomes, cuts, strict=True)
        ],
        "policy": policy.document,
        "bundle": shape.bundle,
        "layers": shape.layers,
    }


def _result(
    answer: RowAnswer, cut: Cut, shape: AnswerShape, top_k: int | None, explain: bool
) -> dict[str, Any]:
    best = int(answer.probabilities.argmax())
    result: dict[str, Any] = {
        "label": shape.labels[best],
        "score": float(answer.probabilities[best]),
        "exit_layer": shape.exits[answer.exit_index],
        "entropy": answer.entropy,
        "truncated": cut.text,
    }
    if cut.pair is not None:
        result["truncated_pair"] = cut.pair
    result["wait_seconds"] = answer.wait_seconds
    result["compute_seconds"] = answer.compute_seconds
    if answer.cut_short:
        result["cut_short"] = True
    if top_k is not None:
        result["top_k"] = _top(answer.probabilities, shape.labels, top_k)
    if explain:
        result["explain"] = [_explained(exit_passed, shape) for exit_passed in answer.passed]
    return result


def _top(
    chances: NDArray[np.float64], labels: tuple[str, ...], count: int
) -> list[dict[str, str | float]]:
    # Stable, so that ties come in the order of the labels, as argmax takes them.
    order = np.argsort(-chances, kind="stable")[:count]
    return [{"label": labels[index], "score": float(chances[index])} for index in order]


def _explained(exit_passed: ExitPassed, shape: AnswerShape) -> dict[str, Any]:
    chances = probabilities(exit_passed.logits[np.newaxis])[0]
    return {
        "exit_layer": shape.exits[exit_passed.exit_index],
        "entropy": exit_passed.entropy,
        "probabilities": dict(zip(shape.labels, chances.tolist(), strict=True)),
    }
