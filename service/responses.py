"""How documents become responses: JSON by orjson, problems with their own content type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Scope

from service.errors import PROBLEM_CONTENT_TYPE, Problem, ProblemKind

# Under this key of the ASGI scope a problem's kind waits to be counted.
PROBLEM_KEY = "patamar.problem"


def json_response(document: Mapping[str, Any]) -> Response:
    return Response(orjson.dumps(document), media_type="application/json")


def problem_response(scope: Scope, problem: Problem) -> Response:
    """The response of a problem; notes its kind in the scope for the request's accounts."""
    scope[PROBLEM_KEY] = problem.kind
    return Response(
        problem.body(),
        status_code=problem.kind.status,
        headers=dict(problem.headers),
        media_type=PROBLEM_CONTENT_TYPE,
    )


def problem_kind(scope: Scope) -> ProblemKind | None:
    """The kind of the problem this request was answered with, if it was one."""
    kind = scope.get(PROBLEM_KEY)
    return kind if isinstance(kind, ProblemKind) else None
