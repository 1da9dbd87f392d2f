"""The documentation is true: its examples are answered, its schemas hold, no page loads more."""

from __future__ import annotations

import re
from typing import Any

import httpx
import jsonschema
import pytest

from multi_exit.bundle import Bundle


@pytest.fixture(scope="module")
def document(tiny: Any) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{tiny.url}/openapi.json").json()
    return found


def _validator(document: dict[str, Any], schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**schema, "components": document["components"]})


def test_every_example_is_valid_by_the_schema_and_is_answered_as_the_schema_says(
    tiny: Any, document: dict[str, Any]
) -> None:
    operation = document["paths"]["/classify"]["post"]
    content = operation["requestBody"]["content"]["application/json"]
    answers = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert len(content["examples"]) >= 3
    for example in content["examples"].values():
        _validator(document, content["schema"]).validate(example["value"])
        response = tiny.post(**example["value"])
        assert response.status_code == 200, response.text
        _validator(document, answers).validate(response.json())


def test_problems_are_as_documented(tiny: Any, document: dict[str, Any]) -> None:
    responses = document["paths"]["/classify"]["post"]["responses"]
    for body, status in (({"inputs": ""}, "422"), ({"inputs": ["w1"] * 1_000}, "422")):
        schema = responses[status]["content"]["application/problem+json"]["schema"]
        _validator(document, schema).validate(tiny.post(**body).json())
    assert set(responses) == {
        *("200", "400", "401", "408", "413", "415", "422", "429", "500", "503", "504")
    }


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name in re.findall(r"'\$ref': '#/components/schemas/(\w+)'", str(document)):
        assert name in schemas


def test_every_route_is_documented(document: dict[str, Any]) -> None:
    assert set(document["paths"]) == {"/classify", "/model", "/healthz", "/readyz", "/metrics"}


def test_the_page_loads_nothing_from_elsewhere(tiny: Any) -> None:
    response = httpx.get(f"{tiny.url}/docs")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?://|src=|@import", response.text)
    assert 'fetch("openapi.json")' in response.text


def test_the_key_is_documented_where_there_is_one_and_pairs_where_they_are_taken(
    tiny_bundle: Bundle, serve: Any, document: dict[str, Any]
) -> None:
    assert "securitySchemes" not in document["components"]
    with serve(tiny_bundle, api_key="k") as running:
        guarded = httpx.get(f"{running.url}/openapi.json").json()
    assert guarded["paths"]["/classify"]["post"]["security"] == [{"key": []}]
    assert "security" not in guarded["paths"]["/healthz"]["get"]
