"""Requests and answers as clients see them.

Strict: unknown fields, numbers in quotes, booleans for numbers, NaN and infinities are refused.
Answers are written from dataclasses (service/answers.py); their models here document them, and
tests hold the two together.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from multi_exit.certificate import CertificateKind
from multi_exit.contracts import ConflictingKnobs, Knobs
from multi_exit.text_encoder import TextInput
from service.errors import InvalidRequest
from service.tokenisation import Input

# Names of the kinds in a union; they stand in pydantic's error locations, not in a client's JSON.
TEXT, OBJECT, LIST = "<text>", "<object>", "<list>"


def _kind(value: object) -> str | None:
    if isinstance(value, str):
        return TEXT
    if isinstance(value, dict | TextObject):
        return OBJECT
    return LIST if isinstance(value, list) else None


def _kind_in_list(value: object) -> str | None:
    kind = _kind(value)
    # ["a", "b"] inside a list would be read as a pair by some and as two texts by others.
    return None if kind == LIST else kind


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class TextObject(_Strict):
    """A text, or a pair of texts that are judged together."""

    text: str = Field(description="the text, or the first side of a pair")
    text_pair: str | None = Field(None, description="the second side of a pair")


_Item = Annotated[
    Annotated[str, Tag(TEXT)] | Annotated[TextObject, Tag(OBJECT)],
    Discriminator(
        _kind_in_list,
        custom_error_type="input_kind",
        custom_error_message="Input should be a text or an object with text and perhaps text_pair",
    ),
]
_Inputs = Annotated[
    Annotated[str, Tag(TEXT)]
    | Annotated[TextObject, Tag(OBJECT)]
    | Annotated[list[_Item], Field(min_length=1), Tag(LIST)],
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
    max_accuracy_drop: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="the fastest operating point that is certified to lose less accuracy against "
        "full depth than this share",
    )
    max_disagreement: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="the fastest operating point that is certified to give at most this share of "
        "texts another label than full depth",
    )
    speed: float | None = Field(
        None,
        ge=1,
        description="the safest operating point that runs, on average, so many times fewer layers "
        "than full depth",
    )
    max_layer: int | None = Field(
        None,
        ge=1,
        description="never run deeper than the last exit at or above this layer; not together with "
        "max_accuracy_drop or max_disagreement",
    )
    deadline_ms: float | None = Field(
        None,
        gt=0,
        le=600_000,
        description="milliseconds from the request's arrival: the deepest exit that still makes it "
        "answers; 504 for a text that reaches none",
    )
    top_k: int | None = Field(None, ge=1, description="list so many labels with their scores")
    explain: bool = Field(False, description="show every exit that was passed")
    truncation: Literal["cut", "refuse"] = Field(
        "cut", description="what to do with a text longer than the model: cut it, or answer 422"
    )

    @property
    def knobs(self) -> Knobs:
        """What it asks of quality and speed. Raises InvalidRequest for two that exclude another."""
        try:
            return Knobs(
                threshold=self.threshold,
                max_accuracy_drop=self.max_accuracy_drop,
                max_disagreement=self.max_disagreement,
                speed=self.speed,
                max_layer=self.max_layer,
            )
        except ConflictingKnobs as error:
            raise InvalidRequest(str(error), members={"field": error.field}) from error

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
    cut_short: bool | None = Field(
        None,
        description="true where the deadline, not the policy, chose the exit: no guarantee covers "
        "this answer",
    )
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


class Guarantee(BaseModel):
    """What the operating point is certified for; GET /model tells the whole certificate."""

    kind: CertificateKind
    epsilon: float = Field(description="share that is promised")
    delta: float | None = Field(
        description="risk that the promise is broken; null for one that holds on average"
    )


class PolicyUsed(BaseModel):
    """What the request resolved to."""

    kind: Literal["threshold", "default", "operating_point", "slid"] = Field(
        description="slid: under load, a faster certified point in place of the default"
    )
    name: str | None = Field(None, description="of the operating point")
    asked: dict[str, float] | None = Field(None, description="the contract that chose the point")
    thresholds: list[float] = Field(description="one an exit; the last is never used")
    guarantees: list[Guarantee] | None = Field(
        None, description="for an operating point that ran as it was certified"
    )
    suspended: bool | None = Field(
        None, description="true where drift was found: full depth ran in place of the point"
    )
    max_layer: int | None = None


class ClassifyAnswer(BaseModel):
    """Answers in the order of the inputs."""

    results: list[Classified | NotClassified]
    policy: PolicyUsed
    bundle: str = Field(description="identifier of the bundle that answered")
    layers: int = Field(description="layers of the model: full depth")


def _text_input(item: str | TextObject) -> TextInput:
    return TextInput(item) if isinstance(item, str) else TextInput(item.text, item.text_pair)
