"""That load does not change answers: texts asked in a crowd, and the same texts alone.

Compared digit by digit as the JSON has them: label, score, entropy and exit layer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.serving.drive import OK, Exchange, closed_loop
from bench.serving.questions import Answering, draw
from bench.serving.server_metrics import scrape, work_between
from bench.serving.server_process import ServerProcess

_COMPARED = ("label", "score", "entropy", "exit_layer")
_MOST_CONNECTIONS = 64
_MOST_TEXTS = 8  # in one request
_REQUESTS_A_CROWD = 500

Answer = tuple[str, ...]  # as _COMPARED, numbers as they are written


@dataclass(frozen=True, slots=True)
class Question:
    """The texts of one request, and the index of the policy they are answered under."""

    texts: tuple[str, ...]
    policy: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A text whose answers differ. policy: its index."""

    text: str
    policy: int
    alone: Answer
    in_crowd: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariance:
    """answers: compared; of them `different` were not the same. errors: requests not answered.

    rows_a_batch: mean rows of a micro-batch in the crowd; near 1 it would have shown nothing.
    """

    answers: int
    distinct: int
    different: int
    errors: int
    rows_a_batch: float | None
    examples: tuple[Disagreement, ...]


def measure_invariance(
    server: ServerProcess,
    policies: Sequence[Answering],
    texts: Sequence[str],
    *,
    answers: int,
    rng: np.random.Generator,
) -> Invariance:
    """Asks for `answers` texts under policies drawn at random, one or several a request, over a
    random number of connections; then for each text and policy alone, one at a time."""
    questions = _questions(texts, len(policies), answers, rng)
    before = scrape(server)
    crowd = _ask_in_crowds(server, questions, policies, rng)
    rows_a_batch = work_between(before, scrape(server)).rows_a_batch
    asked = dict.fromkeys((text, q.policy) for q in questions for text in q.texts)
    single = [Question((text,), policy) for text, policy in asked]
    found = _ask(server, single, policies, connections=1)
    alone = {key: answer[0] for key, answer in zip(asked, found, strict=True) if answer}
    compared, different = compare_answers(questions, crowd, alone)
    return Invariance(
        answers=compared,
        distinct=len(asked),
        different=len(different),
        errors=sum(answers is None for answers in (*crowd, *found)),
        rows_a_batch=rows_a_batch,
        examples=tuple(different[:5]),
    )


def compare_answers(
    questions: Sequence[Question],
    crowd: Sequence[list[Answer] | None],
    alone: Mapping[tuple[str, int], Answer],
) -> tuple[int, list[Disagreement]]:
    """How many answers were compared, and those that differ.

    crowd: the answers to each question, None for one that was not answered; alone: by text and
    policy. What has no answer on one side is passed over. Raises ValueError where a question has
    more or fewer answers than texts.
    """
    compared, different = 0, []
    for question, answers in zip(questions, crowd, strict=True):
        for text, answer in zip(question.texts, answers, strict=True) if answers else ():
            reference = alone.get((text, question.policy))
            compared += reference is not None
            if reference is not None and reference != answer:
                different.append(
                    Disagreement(
                        text=text, policy=question.policy, alone=reference, in_crowd=answer
                    )
                )
    return compared, different


def read_answers(body: bytes) -> list[Answer]:
    """The answers of a response, numbers as they are written. Raises KeyError for an error."""
    document: Any = json.loads(body, parse_float=str, parse_int=str)
    return [tuple(result[name] for name in _COMPARED) for result in document["results"]]


def invariance_table(found: Invariance) -> str:
    """As a Markdown table."""
    lines = [
        "| answers compared | distinct texts and policies | different | errors "
        "| rows a micro-batch |",
        "|--:|--:|--:|--:|--:|",
        f"| {found.answers:,} | {found.distinct:,} | {found.different} | {found.errors} "
        f"| {0 if found.rows_a_batch is None else found.rows_a_batch:.2f} |",
    ]
    lines += [
        f"\npolicy {example.policy}, {example.text!r}: alone {example.alone}, "
        f"in the crowd {example.in_crowd}"
        for example in found.examples
    ]
    return "\n".join(lines)


def _questions(
    texts: Sequence[str], policies: int, answers: int, rng: np.random.Generator
) -> list[Question]:
    left = draw(texts, answers, rng)
    questions = []
    while left:
        # Half of the requests hold one text, the others up to eight.
        count = 1 if rng.random() < 0.5 else int(rng.integers(2, _MOST_TEXTS + 1))
        questions.append(Question(tuple(left[:count]), int(rng.integers(policies))))
        left = left[count:]
    return questions


def _ask_in_crowds(
    server: ServerProcess,
    questions: Sequence[Question],
    policies: Sequence[Answering],
    rng: np.random.Generator,
) -> list[list[Answer] | None]:
    found: list[list[Answer] | None] = []
    for start in range(0, len(questions), _REQUESTS_A_CROWD):
        connections = int(rng.integers(2, _MOST_CONNECTIONS + 1))
        crowd = questions[start : start + _REQUESTS_A_CROWD]
        found += _ask(server, crowd, policies, connections=connections)
    return found


def _ask(
    server: ServerProcess,
    questions: Sequence[Question],
    policies: Sequence[Answering],
    *,
    connections: int,
) -> list[list[Answer] | None]:
    """Answers in the order of the questions; None for a request that was not answered well."""
    requests = [
        policies[q.policy].request(q.texts[0] if len(q.texts) == 1 else q.texts) for q in questions
    ]
    load = closed_loop(server.port, requests, connections=connections, keep_bodies=True)
    by_index = _by_index(load.exchanges)
    return [
        read_answers(by_index[index].body) if by_index[index].status == OK else None
        for index in range(len(questions))
    ]


def _by_index(exchanges: Iterable[Exchange]) -> dict[int, Exchange]:
    return {exchange.index: exchange for exchange in exchanges}
