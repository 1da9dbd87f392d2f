"""Every error has a problem document; none tells what it should not."""

from __future__ import annotations

import json

import pytest

from multi_exit import errors as shared
from service import errors
from service.errors import KINDS, TextRefused, problem_of


def _service_errors() -> list[type[errors.ServiceError]]:
    found: list[type[errors.ServiceError]] = []
    left = [errors.ServiceError]
    while left:
        subclasses = left.pop().__subclasses__()
        found += subclasses
        left += subclasses
    return found


def test_every_service_error_but_its_parents_has_a_kind() -> None:
    parents = {errors.LimitExceeded, TextRefused}
    assert set(_service_errors()) - parents <= set(KINDS)


def test_statuses_are_those_a_client_can_act_on() -> None:
    statuses = {kind.status for kind in KINDS.values()}
    assert statuses == {400, 401, 408, 413, 415, 422, 429, 499, 500, 503, 504}


def test_a_subclass_is_found_by_its_ancestor() -> None:
    class Slower(errors.NotReady):
        pass

    problem = problem_of(Slower("later"))
    assert problem.kind.status == 503
    assert problem.headers == {"Retry-After": "1"}


def test_what_was_not_raised_on_purpose_tells_no_detail() -> None:
    document = problem_of(KeyError("secret text")).document()
    assert document["status"] == 500
    assert "secret" not in json.dumps(document)


def test_errors_about_bundles_are_never_explained_to_clients() -> None:
    assert problem_of(shared.BundleError("/srv/models/secret")).kind is errors.UNEXPECTED


@pytest.mark.parametrize(
    ("cause", "name"),
    [
        (shared.EmptyText("text is empty"), "empty_text"),
        (shared.InvalidText("a lone surrogate"), "invalid_text"),
        (shared.TextTooLong("too long"), "text_too_long"),
    ],
)
def test_a_refused_text_keeps_its_own_kind_and_names_its_place(
    cause: shared.TextError, name: str
) -> None:
    problem = problem_of(TextRefused(cause, where="inputs[3]", members={"limit": 8}))
    document = problem.document()
    assert document["type"] == f"urn:patamar:problem:{name}"
    assert (document["status"], document["field"], document["limit"]) == (422, "inputs[3]", 8)
