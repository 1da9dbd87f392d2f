"""The service's own errors, and the one table from errors to HTTP (RFC 9457 problem documents).

PatamarError
├── ServiceError            parent of those below; carries members and headers of the answer
│   ├── Unauthorised        no API key, or a wrong one
│   ├── MalformedBody       the body is not JSON
│   ├── UnsupportedBody     the body is not declared as plain JSON
│   ├── LimitExceeded       a limit was hit: BodyTooLarge, TooManyTexts, TooManyTokens
│   ├── BodyTimeout         the body did not arrive in time
│   ├── InvalidRequest      a field is missing, unknown, or of a wrong type or value
│   ├── ContractRefused     no operating point keeps what was asked (wraps UnreachableContract)
│   ├── TextRefused         one of the inputs cannot be classified (wraps a TextError)
│   ├── Overloaded          too much is waiting already
│   ├── NotReady            starting, stopping, or the worker ended
│   ├── RequestTimeout      no answer in time
│   ├── DeadlineMissed      no exit was reached before the caller's deadline
│   ├── ClientGone          the client hung up
│   ├── StageFailed         a stage raised
│   └── NotFinite           a stage gave NaN or infinity
└── those of `multi_exit.errors`

Messages never repeat what a client sent: raw input may be no valid Unicode, or no JSON number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import orjson

from multi_exit.contracts import UnreachableContract
from multi_exit.errors import (
    EmptyText,
    InvalidText,
    PatamarError,
    PolicyError,
    TextError,
    TextTooLong,
)

Outcome = Literal["rejected", "failed", "cancelled"]
Member = str | int | float

PROBLEM_CONTENT_TYPE = "application/problem+json"


class ServiceError(PatamarError):
    """Parent of the service's errors. members: further fields of the problem document."""

    def __init__(
        self,
        message: str,
        *,
        members: Mapping[str, Member] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.members = dict(members or {})
        self.headers = dict(headers or {})


class Unauthorised(ServiceError):
    """No API key was sent, or a wrong one."""

    def __init__(self) -> None:
        super().__init__(
            "Send the API key as `Authorization: Bearer <key>`.",
            headers={"WWW-Authenticate": "Bearer"},
        )


class MalformedBody(ServiceError):
    """The body is not JSON."""


class UnsupportedBody(ServiceError):
    """The body is not declared as JSON in UTF-8, or it is compressed."""


class LimitExceeded(ServiceError):
    """A limit was hit: says which, its value, what was received and which setting moves it.

    received: None where it is not known, because reading stopped at the limit.
    """

    def __init__(
        self, message: str, *, limit: int, received: int | None, setting: str, **more: Member
    ) -> None:
        members: dict[str, Member] = {**more, "limit": limit, "setting": setting}
        if received is not None:
            members["received"] = received
        super().__init__(message, members=members)


class BodyTooLarge(LimitExceeded):
    """More bytes than a body may have."""


class TooManyTexts(LimitExceeded):
    """More inputs than a request may have."""


class TooManyTokens(LimitExceeded):
    """A request that could not be accepted even if nothing else waited."""


class BodyTimeout(ServiceError):
    """The body did not arrive in time."""


class InvalidRequest(ServiceError):
    """A field is missing, unknown, or of a wrong type or value."""


class ContractRefused(ServiceError):
    """No operating point keeps what was asked. cause: says which, and what could be asked."""

    def __init__(self, cause: UnreachableContract) -> None:
        members: dict[str, Member] = {"field": cause.field, "received": cause.asked}
        if cause.nearest is not None:
            members["nearest"] = cause.nearest
        super().__init__(str(cause), members=members)


class TextRefused(ServiceError):
    """One of the inputs cannot be classified. cause: why; its kind decides the answer."""

    def __init__(self, cause: TextError, *, where: str, members: Mapping[str, Member]) -> None:
        super().__init__(f"{where}: {cause}", members={**members, "field": where})
        self.cause = cause


class Overloaded(ServiceError):
    """Too much is waiting already; nothing of this request was accepted."""

    def __init__(self, *, retry_after_seconds: int, limit: float, setting: str) -> None:
        super().__init__(
            f"Try again in {retry_after_seconds} s, or send fewer texts.",
            members={"limit": limit, "setting": setting},
            headers={"Retry-After": str(retry_after_seconds)},
        )


class NotReady(ServiceError):
    """The service is starting or stopping, or its worker ended."""

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"Retry-After": "1"})


class RequestTimeout(ServiceError):
    """The request was not answered in time; its rows were dropped."""


class DeadlineMissed(ServiceError):
    """The caller's deadline came before a text reached its first exit."""


class ClientGone(ServiceError):
    """The client hung up; nobody reads the answer."""


class StageFailed(ServiceError):
    """A stage raised for the micro-batch of this text."""


class NotFinite(ServiceError):
    """A stage gave NaN or infinity for this text."""


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """How one kind of error is told to clients and counted.

    name: end of the type URI, and reason in /metrics. outcome: what the request counts as.
    """

    status: int
    name: str
    title: str
    outcome: Outcome = "rejected"


UNEXPECTED = ProblemKind(500, "internal", "The service failed", "failed")

# Status numbers of errors stand here alone. Found along an error's ancestry.
KINDS: Mapping[type[BaseException], ProblemKind] = {
    MalformedBody: ProblemKind(400, "malformed_body", "The body is not JSON"),
    Unauthorised: ProblemKind(401, "unauthorised", "An API key is needed"),
    BodyTimeout: ProblemKind(408, "body_timeout", "The body came too slowly"),
    BodyTooLarge: ProblemKind(413, "body_too_large", "The body is too large"),
    UnsupportedBody: ProblemKind(415, "unsupported_body", "The body must be application/json"),
    InvalidRequest: ProblemKind(422, "invalid_request", "A field of the request is wrong"),
    ContractRefused: ProblemKind(422, "unreachable_contract", "No operating point keeps this"),
    PolicyError: ProblemKind(422, "invalid_request", "A field of the request is wrong"),
    InvalidText: ProblemKind(422, "invalid_text", "A text is not valid Unicode"),
    EmptyText: ProblemKind(422, "empty_text", "A text is empty"),
    TextTooLong: ProblemKind(422, "text_too_long", "A text is too long"),
    TooManyTexts: ProblemKind(422, "too_many_texts", "Too many texts"),
    TooManyTokens: ProblemKind(422, "too_many_tokens", "Too many tokens"),
    Overloaded: ProblemKind(429, "overloaded", "Too much is waiting"),
    ClientGone: ProblemKind(499, "client_gone", "The client hung up", "cancelled"),
    StageFailed: ProblemKind(500, "stage_failed", "A stage of the model failed", "failed"),
    NotFinite: ProblemKind(500, "not_finite", "The model gave no finite number", "failed"),
    NotReady: ProblemKind(503, "not_ready", "The service takes no requests now"),
    RequestTimeout: ProblemKind(504, "timeout", "No answer in time", "failed"),
    DeadlineMissed: ProblemKind(504, "deadline_missed", "No exit before the deadline", "failed"),
}
_FRAMEWORK = {
    404: ProblemKind(404, "not_found", "There is nothing at this address"),
    405: ProblemKind(405, "wrong_method", "This address does not take this method"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem document, ready to be sent."""

    kind: ProblemKind
    detail: str
    members: Mapping[str, Member] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Member]:
        return {
            "type": f"urn:patamar:problem:{self.kind.name}",
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            **self.members,
        }

    def body(self) -> bytes:
        return orjson.dumps(self.document())


def problem_of(error: BaseException) -> Problem:
    """The problem document of an error. What was not raised on purpose tells no detail."""
    cause = error.cause if isinstance(error, TextRefused) else error
    for ancestor in type(cause).__mro__:
        kind = KINDS.get(ancestor)
        if kind is not None:
            members = error.members if isinstance(error, ServiceError) else {}
            headers = error.headers if isinstance(error, ServiceError) else {}
            return Problem(kind=kind, detail=str(error), members=members, headers=headers)
    return Problem(kind=UNEXPECTED, detail="This is a bug of the service; its log tells more.")


def problem_of_status(status: int, detail: str, headers: Mapping[str, str]) -> Problem:
    """The problem document of an error that the web framework raised: unknown route or method."""
    kind = _FRAMEWORK.get(status, ProblemKind(status, "http", "The request was refused"))
    return Problem(kind=kind, detail=detail, headers=headers)
