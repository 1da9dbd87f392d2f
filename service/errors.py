"""The service's errors, and the one table from every error to what a client sees (RFC 9457).

PatamarError (multi_exit.errors)
└── ServiceError
    ├── MalformedBody       400  not JSON, or nested too deeply
    ├── Unauthorised        401
    ├── BodyTimeout         408  the body did not arrive in time
    ├── UnsupportedBody     415  not declared to be JSON
    ├── InvalidRequest      422  JSON, but a field is wrong
    ├── TextRefused         422  a text cannot be classified
    ├── LimitExceeded
    │   ├── BodyTooLarge    413
    │   ├── TooManyTexts    422
    │   ├── TooManyTokens   422  more than could ever wait
    │   └── Overloaded      429  with Retry-After
    ├── ClientGone          499  nobody reads it; only metrics know
    ├── StageFailed         500
    ├── NotFinite           500
    ├── NotReady            503  with Retry-After
    └── RequestTimeout      504

Documents never repeat what was sent: it may not be valid Unicode, nor a number JSON can write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import orjson

from multi_exit.errors import EmptyText, InvalidText, PatamarError, TextError, TextTooLong

PROBLEM_CONTENT_TYPE = "application/problem+json"
_NOT_READY_RETRY_SECONDS = 5

Member = str | int | float
Outcome = Literal["failed", "cancelled", "rejected"]


class ServiceError(PatamarError):
    """Parent of what a request can be refused with. members join the problem document."""

    def __init__(self, detail: str, *, members: Mapping[str, Member] | None = None) -> None:
        super().__init__(detail)
        self.members: Mapping[str, Member] = members or {}
        self.headers: Mapping[str, str] = {}


class MalformedBody(ServiceError):
    """The body is not JSON."""


class Unauthorised(ServiceError):
    """The API key is missing or wrong."""

    def __init__(self) -> None:
        super().__init__("Send the API key: `Authorization: Bearer KEY`.")
        self.headers = {"WWW-Authenticate": "Bearer"}


class BodyTimeout(ServiceError):
    """The body did not arrive in time."""


class UnsupportedBody(ServiceError):
    """The body is not declared to be plain JSON."""


class InvalidRequest(ServiceError):
    """The body is JSON, but not a request."""


class TextRefused(ServiceError):
    """A text cannot be classified. where: its place in the request, "inputs[3].text"."""

    def __init__(self, error: TextError, *, where: str, members: Mapping[str, Member]) -> None:
        super().__init__(f"{where}: {error}.", members={"field": where, **members})
        self.kind = _TEXT_KINDS[type(error)]


class LimitExceeded(ServiceError):
    """Parent of limits that were hit; names the limit, what came, and the operator's setting."""

    def __init__(
        self,
        detail: str,
        *,
        limit: float,
        setting: str,
        received: float | None = None,
        field: str | None = None,
    ) -> None:
        given = {"field": field, "limit": limit, "received": received, "setting": setting}
        super().__init__(
            detail, members={name: value for name, value in given.items() if value is not None}
        )


class BodyTooLarge(LimitExceeded):
    """The body has more bytes than allowed."""


class TooManyTexts(LimitExceeded):
    """The request has more texts than allowed."""


class TooManyTokens(LimitExceeded):
    """The request alone has more tokens than may ever wait."""


class Overloaded(LimitExceeded):
    """Too much is waiting already."""

    def __init__(self, *, retry_after_seconds: int, limit: float, setting: str) -> None:
        super().__init__(
            f"Try again in {retry_after_seconds} s or send fewer texts.",
            limit=limit,
            setting=setting,
        )
        self.headers = {"Retry-After": str(retry_after_seconds)}


class ClientGone(ServiceError):
    """The client hung up; nobody reads the answer."""


class StageFailed(ServiceError):
    """A stage raised an error for this text's micro-batch."""


class NotFinite(ServiceError):
    """The model gave a number that is not finite for this text."""


class NotReady(ServiceError):
    """The service is starting, stopping or broken."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.headers = {"Retry-After": str(_NOT_READY_RETRY_SECONDS)}


class RequestTimeout(ServiceError):
    """The answer took too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemKind:
    """What all problems of one kind share. name: bounded, also a metric's label."""

    name: str
    status: int
    title: str
    outcome: Outcome = "rejected"

    @property
    def type(self) -> str:
        return f"urn:patamar:problem:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem: its kind, and what is true of this one."""

    kind: ProblemKind
    detail: str
    members: Mapping[str, Member] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Member]:
        """The RFC 9457 document."""
        return {
            "type": self.kind.type,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            **self.members,
        }

    def body(self) -> bytes:
        return orjson.dumps(self.document())


def _kind(name: str, status: int, title: str, outcome: Outcome = "rejected") -> ProblemKind:
    return ProblemKind(name=name, status=status, title=title, outcome=outcome)


_BUG = _kind("internal", 500, "The service failed", "failed")
_NOT_FOUND = _kind("not_found", 404, "There is nothing at this address")
_WRONG_METHOD = _kind("method_not_allowed", 405, "This address does not take this method")
_BAD_REQUEST = _kind("bad_request", 400, "The request cannot be read")
_INVALID_TEXT = _kind("invalid_text", 422, "A text is not valid Unicode")
_EMPTY_TEXT = _kind("empty_text", 422, "A text is empty")
_TEXT_TOO_LONG = _kind("text_too_long", 422, "A text is too long")

_TEXT_KINDS: dict[type[TextError], ProblemKind] = {
    InvalidText: _INVALID_TEXT,
    EmptyText: _EMPTY_TEXT,
    TextTooLong: _TEXT_TOO_LONG,
}

KINDS: dict[type[PatamarError], ProblemKind] = {
    MalformedBody: _kind("malformed_body", 400, "The body is not JSON"),
    Unauthorised: _kind("unauthorised", 401, "An API key is needed"),
    BodyTimeout: _kind("body_timeout", 408, "The body did not arrive in time"),
    BodyTooLarge: _kind("body_too_large", 413, "The body is too large"),
    UnsupportedBody: _kind("unsupported_body", 415, "The body must be plain JSON"),
    InvalidRequest: _kind("invalid_request", 422, "A field of the request is wrong"),
    TooManyTexts: _kind("too_many_texts", 422, "The request has too many texts"),
    TooManyTokens: _kind("too_many_tokens", 422, "The request has too many tokens"),
    **_TEXT_KINDS,
    Overloaded: _kind("overloaded", 429, "Too many tokens are waiting"),
    # Not a standard status: what proxies log for a client that hung up.
    ClientGone: _kind("client_gone", 499, "The client hung up", "cancelled"),
    StageFailed: _kind("stage_failed", 500, "A stage of the model failed", "failed"),
    NotFinite: _kind("not_finite", 500, "The model gave no finite number", "failed"),
    NotReady: _kind("not_ready", 503, "The service does not answer now"),
    RequestTimeout: _kind("request_timeout", 504, "The answer took too long", "failed"),
}

_PLAIN_KINDS = {404: _NOT_FOUND, 405: _WRONG_METHOD}


def problem_of(error: BaseException) -> Problem:
    """The problem of any error: that of its nearest ancestor in the table, else a bug."""
    kind = _kind_of(error)
    if kind is None or not isinstance(error, ServiceError):
        return Problem(kind=_BUG, detail="This is a bug in the service; its log tells more.")
    return Problem(kind=kind, detail=str(error), members=error.members, headers=error.headers)


def problem_of_status(status: int, detail: str, headers: Mapping[str, str]) -> Problem:
    """The problem of a plain HTTP status: an unknown route or a wrong method."""
    return Problem(kind=_PLAIN_KINDS.get(status, _BAD_REQUEST), detail=detail, headers=headers)


def _kind_of(error: BaseException) -> ProblemKind | None:
    if isinstance(error, TextRefused):
        return error.kind
    return next((KINDS[ancestor] for ancestor in type(error).__mro__ if ancestor in KINDS), None)
