"""Asks a running Prometheus everything that dashboard and alerts ask, and names what has no answer.

`python -m deploy.verify http://localhost:9090` after traffic has flowed for a minute: an empty
panel is then a broken query or a missing metric, not a quiet service.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

from deploy.alerts.rules import all_alerts
from deploy.grafana import GENERATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query and where it is asked."""

    asked_by: str  # a panel's title or an alert's name
    expression: str


def questions(*, window: str) -> Iterator[Question]:
    """Every panel's queries, with Grafana's variables replaced, and every alert's signals.

    window: a PromQL duration that takes the place of Grafana's two; at least two scrapes long.
    """
    variables = {"$__rate_interval": window, "$__range": window, "$job": ".+", "$instance": ".+"}
    for panel in json.loads(GENERATED.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            expression: str = target["expr"]
            for variable, value in variables.items():
                expression = expression.replace(variable, value)
            yield Question(asked_by=panel["title"], expression=expression)
    for alert in all_alerts():
        for condition in alert.conditions:
            yield Question(asked_by=alert.name, expression=condition.signal)


def unanswered(prometheus: str, *, window: str = "1m") -> list[str]:
    """A line for each question that Prometheus rejects, or that has no number for an answer.

    prometheus: its address, such as http://localhost:9090. Raises OSError if it is not there.
    """
    problems = []
    for question in questions(window=window):
        problem = _problem(prometheus, question.expression)
        if problem is not None:
            problems.append(f"{question.asked_by}: {problem}: {question.expression}")
    return problems


def _problem(prometheus: str, expression: str) -> str | None:
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{prometheus}/api/v1/query?{query}", timeout=30) as response:
            samples = json.load(response)["data"]["result"]
    except urllib.error.HTTPError as error:
        with error:
            return str(json.load(error)["error"])
    if not samples:
        return "no data"
    if all(sample["value"][1] == "NaN" for sample in samples):
        return "not a number"
    return None


def _main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m deploy.verify http://localhost:9090", file=sys.stderr)
        return 2
    problems = unanswered(arguments[0])
    print("\n".join(problems) if problems else "every panel and alert has data")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
