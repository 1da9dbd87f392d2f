"""Requests and answers as clients see them, and how a body becomes a request.

Strict: unknown fields, numbers in quotes, booleans for numbers, NaN and infinities are refused.
Answers are written from dataclasses (service/answers.py); their models here document them, and
tests hold the two together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from multi_exit.text_encoder import TextInput
from service.errors import InvalidRequest, MalformedBody, Member, TooManyTexts
from service.tokenisation import Input

# Names of the kinds in a union; they stand in pydantic's error locations, not in a client's JSON.
_TEXT, _OBJECT, _LIST = "<text>", "<object>", "<list>"
_FIELD_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def _kind(value: object) -> str | None:
    if isinstance(value, str):
        return _TEXT
    if isinstance(value, dict | TextObject):
        return _OBJECT
    return _LIST if isinstance(value, list) else None


def _kind_in_list(value: object) -> str | None:
    kind = _kind(value)
    # ["a", "b"] inside a list would be read as a pair by some and as two texts by others.
    return None if kind == _LIST else kind


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class TextObject(_Strict):
    """A text, or a pair of texts that are judged together."""

    text: str = Field(description="the text, or the first side of a pair")
    text_pair: str | None = Field(None, description="the second side of a pair")


_Item = Annotated[
    Annotated[str, Tag(_TEXT)] | Annotated[TextObject, Tag(_OBJECT)],
    Discriminator(
        _kind_in_list,
        custom_error_type="input_kind",
        custom_error_message="Input should be a text or an object with text and perhaps text_pair",
    ),
]
_Inputs = Annotated[
    Annotated[str, Tag(_TEXT)]
    | Annotated[TextObject, Tag(_OBJECT)]
    | Annotated[list[_Item], Field(min_length=1), Tag(_LIST)],
    Discriminator(
        _kind,
        custom_error_type="inputs_kind",
        custom_error_message="Input should be a text, an object with text and perhaps text_pair, "
        "or a list of these",
    ),
]


class ClassifyRequest(_Strict):
    """What to classify, and how sure the answer must be."""

    inputs: _Inputs = Field(
        description="one text; an object; or a list of texts and objects. A list is always "
        "several inputs, never a pair"
    )
    threshold: float | None = Field(
        None,
        ge=0,
        le=1,
        description="leave at the first exit whose entropy is strictly below this: 0 is full "
        "depth, higher is faster. Without it the server's default policy applies",
    )
    max_layer: int | None = Field(
        None, ge=1, description="never run deeper than the last exit at or above this layer"
    )
    top_k: int | None = Field(None, ge=1, description="list so many labels with their scores")
    explain: bool = Field(False, description="show every exit that was passed")
    truncation: Literal["cut", "refuse"] = Field(
        "cut", description="what to do with a text longer than the model: cut it, or answer 422"
    )

    def texts(self) -> list[Input]:
        """The inputs in order, each with its place in the request."""
        if isinstance(self.inputs, list):
            return [
                Input(text=_text_input(item), where=f"inputs[{index}]")
                for index, item in enumerate(self.inputs)
            ]
        return [Input(text=_text_input(self.inputs), where="inputs")]


class LabelScore(BaseModel):
    """A label and its probability."""

    label: str
    score: float


class ExplainedExit(BaseModel):
    """What one exit on the way said."""

    exit_layer: int
    entropy: float
    probabilities: dict[str, float]


class Classified(BaseModel):
    """The answer to one input."""

    label: str
    score: float = Field(description="probability of the label, 0 to 1")
    exit_layer: int = Field(description="layer after which the text left")
    entropy: float = Field(description="normalised entropy at that exit, 0 (sure) to 1")
    truncated: bool = Field(description="whether the text was cut to the model's length")
    truncated_pair: bool | None = Field(None, description="the same of text_pair; only for pairs")
    wait_seconds: float
    compute_seconds: float
    top_k: list[LabelScore] | None = None
    explain: list[ExplainedExit] | None = None


class ProblemDocument(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    field: str | None = Field(None, description="which part of the request")
    limit: float | None = Field(None, description="the limit that was hit")
    received: float | None = Field(None, description="what came instead")
    setting: str | None = Field(None, description="the operator's setting that moves the limit")


class NotClassified(BaseModel):
    """An input that got an error while its neighbours were answered."""

    error: ProblemDocument


class PolicyUsed(BaseModel):
    """What the request resolved to."""

    kind: Literal["threshold", "default", "operating_point"]
    name: str | None = Field(None, description="of the operating point")
    thresholds: list[float] = Field(description="one an exit; the last is never used")
    max_layer: int | None = None


class ClassifyAnswer(BaseModel):
    """Answers in the order of the inputs."""

    results: list[Classified | NotClassified]
    policy: PolicyUsed
    bundle: str = Field(description="identifier of the bundle that answered")
    layers: int = Field(description="layers of the model: full depth")


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
        elif part not in (_TEXT, _OBJECT, _LIST):
            name = part if _FIELD_NAME.fullmatch(part) else "(unknown)"
            path += f".{name}" if path else name
    return path


def _known_fields(location: Sequence[str | int]) -> list[str]:
    return list((TextObject if _OBJECT in location else ClassifyRequest).model_fields)


def _text_input(item: str | TextObject) -> TextInput:
    return TextInput(item) if isinstance(item, str) else TextInput(item.text, item.text_pair)
