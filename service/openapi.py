"""The API's description: the request's schema, examples that work, and every error's shape."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from service.errors import KINDS, PROBLEM_CONTENT_TYPE
from service.schemas import ClassifyAnswer, ClassifyRequest, ProblemDocument

EXAMPLES: dict[str, dict[str, Any]] = {
    "one text": {
        "summary": "One text, under the server's default policy",
        "value": {"inputs": "My card still has not arrived, what now?"},
    },
    "several texts, faster": {
        "summary": "A list is several texts; a higher threshold leaves earlier",
        "value": {
            "inputs": ["I lost my card", "Which currencies can I exchange, and at what rate?"],
            "threshold": 0.3,
        },
    },
    "full depth, explained": {
        "summary": "Threshold 0 runs every layer; see what each exit said",
        "value": {"inputs": "I lost my card", "threshold": 0, "top_k": 3, "explain": True},
    },
    "a pair": {
        "summary": "Two texts that are judged together; at most two layers",
        "value": {
            "inputs": {"text": "A man is eating.", "text_pair": "Somebody has food."},
            "max_layer": 2,
        },
    },
}

_REFERENCE = "#/components/schemas/{model}"
_PROBLEM_CONTENT = {
    PROBLEM_CONTENT_TYPE: {"schema": {"$ref": _REFERENCE.format(model="ProblemDocument")}}
}


def _responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    titles: dict[int, list[str]] = {}
    for kind in KINDS.values():
        known = titles.setdefault(kind.status, [])
        if kind.title not in known:
            known.append(kind.title)
    return {
        status: {"description": "; ".join(titles[status]), "content": _PROBLEM_CONTENT}
        for status in statuses
    }


CLASSIFY_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Answers in the order of the inputs",
        "content": {
            "application/json": {"schema": {"$ref": _REFERENCE.format(model="ClassifyAnswer")}}
        },
    },
    **_responses(400, 401, 408, 413, 415, 422, 429, 500, 503, 504),
}
UNAUTHORISED_RESPONSE = _responses(401)
NOT_READY_RESPONSE = _responses(503)


def describe(app: FastAPI, *, needs_key: bool, takes_pairs: bool) -> dict[str, Any]:
    """The OpenAPI document. Models are added by hand: routes read their bodies themselves."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=[{"name": "classify"}, {"name": "model"}, {"name": "operations"}],
    )
    components = document.setdefault("components", {})
    _, definitions = models_json_schema(
        [
            (ClassifyRequest, "validation"),
            (ClassifyAnswer, "serialization"),
            (ProblemDocument, "serialization"),
        ],
        ref_template=_REFERENCE,
    )
    components.setdefault("schemas", {}).update(definitions["$defs"])
    document["paths"]["/classify"]["post"]["requestBody"] = {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"$ref": _REFERENCE.format(model="ClassifyRequest")},
                "examples": {
                    name: example
                    for name, example in EXAMPLES.items()
                    if takes_pairs or name != "a pair"
                },
            }
        },
    }
    if needs_key:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, method in (("/classify", "post"), ("/model", "get")):
            document["paths"][path][method]["security"] = [{"key": []}]
    return document
