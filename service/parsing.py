"""How a body becomes a request, and how what is wrong with it is told."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import orjson
from pydantic import ValidationError

from service.errors import InvalidRequest, MalformedBody, Member, TooManyTexts
from service.schemas import LIST, OBJECT, TEXT, ClassifyRequest, TextObject

_FIELD_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def parse_request(body: bytes, *, max_texts: int, max_top_k: int) -> ClassifyRequest:
    """Reads a body. Raises MalformedBody, TooManyTexts or InvalidRequest; none repeats input."""
    content = _parse_json(body)
    if not isinstance(content, dict):
        raise InvalidRequest("The body must be a JSON object with inputs.")
    inputs = content.get("inputs")
    if isinstance(inputs, list) and len(inputs) > max_texts:
        raise TooManyTexts(
            f"inputs: {len(inputs)} texts where {max_texts} are allowed; send several requests.",
            limit=max_texts,
            received=len(inputs),
            setting="max_texts",
            field="inputs",
        )
    try:
        request = ClassifyRequest.model_validate(content)
    except ValidationError as error:
        raise _invalid(error) from None
    if request.top_k is not None and request.top_k > max_top_k:
        members: dict[str, Member] = {
            "field": "top_k",
            "limit": max_top_k,
            "received": request.top_k,
            "setting": "max_top_k",
        }
        raise InvalidRequest(f"top_k: at most {max_top_k} labels are listed.", members=members)
    return request


def _parse_json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    # orjson refuses what Python's parser lets through: lone surrogates, NaN and infinities. That
    # JSON has a shape, so the validation that follows can name the field at fault.
    try:
        return json.loads(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise MalformedBody("The body is not UTF-8.") from None
    except RecursionError:
        raise MalformedBody("The body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise MalformedBody(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from None
    except ValueError:
        raise MalformedBody("The body holds a number with too many digits.") from None


def _invalid(error: ValidationError) -> InvalidRequest:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    first = problems[0]
    field = _field(first["loc"]) or "(a field's name)"  # not even a key could be read
    more = f" ({len(problems) - 1} more.)" if len(problems) > 1 else ""
    if first["type"] == "extra_forbidden":
        known = ", ".join(_known_fields(first["loc"]))
        return InvalidRequest(
            f"{field}: no such field; known are {known}.{more}", members={"field": field}
        )
    return InvalidRequest(f"{field}: {first['msg']}.{more}", members={"field": field})


def _field(location: Sequence[str | int]) -> str:
    """ "inputs[3].text" for pydantic's location; a name that could be anything is not repeated."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in (TEXT, OBJECT, LIST):
            name = part if _FIELD_NAME.fullmatch(part) else "(unknown)"
            path += f".{name}" if path else name
    return path


def _known_fields(location: Sequence[str | int]) -> list[str]:
    return list((TextObject if OBJECT in location else ClassifyRequest).model_fields)
