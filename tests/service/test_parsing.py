"""What a body may be, and what is said of one that may not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequest, MalformedBody, ServiceError, TooManyTexts, problem_of
from service.parsing import parse_request
from service.schemas import ClassifyRequest

LIMITS = {"max_texts": 5, "max_top_k": 3}


def _parse(body: bytes | dict[str, Any]) -> ClassifyRequest:
    return parse_request(body if isinstance(body, bytes) else json.dumps(body).encode(), **LIMITS)


def test_a_list_is_several_texts_and_an_object_a_pair() -> None:
    inputs = _parse({"inputs": ["a", {"text": "b"}, {"text": "c", "text_pair": "d"}]}).texts()
    assert [(item.text.text, item.text.text_pair, item.where) for item in inputs] == [
        ("a", None, "inputs[0]"),
        ("b", None, "inputs[1]"),
        ("c", "d", "inputs[2]"),
    ]
    (single,) = _parse({"inputs": "a"}).texts()
    assert single.where == "inputs"


def test_null_is_the_same_as_leaving_a_knob_out() -> None:
    knobs = {"threshold": None, "max_layer": None, "top_k": None}
    assert _parse({"inputs": "a", **knobs}) == _parse({"inputs": "a"})


@pytest.mark.parametrize("threshold", [0, 1, 0.5])
def test_whole_numbers_are_thresholds_too(threshold: float) -> None:
    assert _parse({"inputs": "a", "threshold": threshold}).threshold == threshold


WRONG: list[tuple[bytes, str | None]] = [
    (b'{"inputs": "a", "threshold": "0.3"}', "threshold"),
    (b'{"inputs": "a", "threshold": true}', "threshold"),
    (b'{"inputs": "a", "threshold": NaN}', "threshold"),
    (b'{"inputs": "a", "threshold": Infinity}', "threshold"),
    (b'{"inputs": "a", "threshold": 1e999}', "threshold"),
    (b'{"inputs": "a", "threshold": -0.1}', "threshold"),
    (b'{"inputs": "a", "threshold": 1.1}', "threshold"),
    (b'{"inputs": "a", "max_layer": 0}', "max_layer"),
    (b'{"inputs": "a", "max_layer": 2.0}', "max_layer"),
    (b'{"inputs": "a", "max_layer": "2"}', "max_layer"),
    (b'{"inputs": "a", "top_k": true}', "top_k"),
    (b'{"inputs": "a", "top_k": 4}', "top_k"),
    (b'{"inputs": "a", "explain": "yes"}', "explain"),
    (b'{"inputs": "a", "explain": 1}', "explain"),
    (b'{"inputs": "a", "truncation": "drop"}', "truncation"),
    (b'{"inputs": "a", "thresold": 0.1}', "thresold"),
    (b'{"inputs": null}', "inputs"),
    (b'{"inputs": 3}', "inputs"),
    (b'{"inputs": NaN}', "inputs"),
    (b'{"inputs": []}', "inputs"),
    (b'{"inputs": ["a", 3]}', "inputs[1]"),
    (b'{"inputs": [["a", "b"]]}', "inputs[0]"),
    (b'{"inputs": {"text": 3}}', "inputs.text"),
    (b'{"inputs": {"text_pair": "a"}}', "inputs.text"),
    (b'{"inputs": [{"text": "a", "pair": "b"}]}', "inputs[0].pair"),
    (b'{"text": "a"}', "inputs"),
    (b"[]", None),
    (b'"text"', None),
    (b"null", None),
]


@pytest.mark.parametrize(("body", "field"), WRONG, ids=[body.decode() for body, _ in WRONG])
def test_a_wrong_field_is_named(body: bytes, field: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        _parse(body)
    assert caught.value.members.get("field") == field


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"inputs": "a"',
        b"{'inputs': 'a'}",
        b'{"inputs": "a"} trailing',
        b"\xff\xfe",
        b'{"inputs": "\xff"}',
        '{"inputs": "a"}'.encode("utf-16"),
        b"[" * 100_000,
        b'{"inputs":' * 50_000,
        b'{"threshold": ' + b"1" * 5_000 + b"}",
    ],
    ids=range(11),
)
def test_what_is_not_json_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        _parse(body)


def test_too_many_texts_name_limit_received_and_setting() -> None:
    with pytest.raises(TooManyTexts) as caught:
        _parse({"inputs": ["a"] * 10_000})
    assert caught.value.members == {
        "field": "inputs",
        "limit": 5,
        "received": 10_000,
        "setting": "max_texts",
    }


def test_a_lone_surrogate_is_left_to_the_encoder_and_one_in_a_name_is_refused() -> None:
    assert _parse(b'{"inputs": "\\ud83d"}').texts()[0].text.text == "\ud83d"
    with pytest.raises(InvalidRequest):
        _parse(b'{"\\ud83d": 1, "inputs": "a"}')


def test_a_name_that_could_be_anything_is_not_repeated() -> None:
    with pytest.raises(InvalidRequest) as caught:
        _parse({"inputs": "a", "<script>alert(1)</script>": 1})
    assert "script" not in str(caught.value)
    assert caught.value.members["field"] == "(unknown)"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=10,
)
bodies = (
    st.binary()
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(
        st.sampled_from([*ClassifyRequest.model_fields, "other"]), json_values, max_size=4
    ).map(lambda value: json.dumps(value).encode())
)


@given(bodies)
def test_any_body_is_a_request_or_an_error_that_can_be_written(body: bytes) -> None:
    try:
        request = _parse(body)
    except ServiceError as error:
        problem = problem_of(error)
        assert 400 <= problem.kind.status < 500
        assert len(problem.body()) < 2_000
    else:
        assert request.texts()
