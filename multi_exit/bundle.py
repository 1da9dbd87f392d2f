"""The sealed folder that export writes and the service loads: its manifest, and loading it.

bundle.json      this manifest
stage_01.onnx …  one graph an exit, no weight twice
merge.onnx       joins the rows of two groups on the device
tokenizer.json   the tokenizer
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from multi_exit.certificate import Certificate, CertificateKind
from multi_exit.errors import BundleError
from multi_exit.policy import Policy
from multi_exit.text_encoder import TextEncoder, TextInput, UnicodeForm

FORMAT_VERSION: Literal[1] = 1
MANIFEST_FILE = "bundle.json"

Precision = Literal["fp32", "fp16", "int8"]
TokenInput = Literal["input_ids", "attention_mask", "token_type_ids"]
_TOKEN_INPUTS: tuple[TokenInput, ...] = ("input_ids", "attention_mask", "token_type_ids")
# A plain name: a manifest must not be able to point outside its folder.
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class StageEntry(_Frozen):
    """One graph: layers first_layer to exit_layer (counted from 1) and the exit after them."""

    file: FileName
    first_layer: int = Field(ge=1)
    exit_layer: int = Field(ge=1)


class OperatingPoint(_Frozen):
    """Thresholds, one an exit, with what the calibration split measured for them.

    average_layers: layers run on average. speedup: all layers / average_layers. time_speedup: the
    same of the stages' time for one text, measured where the bundle was calibrated.
    agreement: share with the label of full depth. accuracy: None without labels.
    """

    name: str = Field(min_length=1)
    thresholds: tuple[Share, ...] = Field(min_length=1)
    average_layers: float = Field(gt=0)
    speedup: float = Field(ge=1)
    time_speedup: float | None = Field(None, gt=0)
    samples: int = Field(ge=1)
    agreement: Share
    accuracy: Share | None
    full_depth_accuracy: Share | None
    certificates: tuple[Certificate, ...] = ()

    @property
    def policy(self) -> Policy:
        return Policy(self.thresholds)

    def promises(self, kind: CertificateKind, epsilon: float) -> bool:
        """Whether a certificate of this kind about all texts covers `epsilon`."""
        return any(
            found.kind == kind and found.label is None and found.epsilon <= epsilon
            for found in self.certificates
        )


class GoldenExample(_Frozen):
    """A text and what every exit answered when the bundle was sealed."""

    text: str
    text_pair: str | None
    labels: tuple[str, ...]
    entropies: tuple[float, ...]
    logits: tuple[tuple[float, ...], ...]

    @property
    def text_input(self) -> TextInput:
        return TextInput(self.text, self.text_pair)


class Provenance(_Frozen):
    """Where a bundle comes from: enough to make it again."""

    created: str
    checkpoint_sha256: str
    training_configuration: dict[str, Any]
    data_sha256: dict[str, str]
    library_versions: dict[str, str]
    calibration: dict[str, Any]


class BundleManifest(_Frozen):
    """Content of bundle.json."""

    format_version: Literal[1] = FORMAT_VERSION
    name: str = Field(min_length=1)
    labels: tuple[str, ...] = Field(min_length=2)
    layers: int = Field(ge=1)
    exits: tuple[int, ...] = Field(min_length=1)
    hidden_size: int = Field(ge=1)
    max_length: int = Field(ge=4)
    length_buckets: tuple[int, ...] = Field(min_length=1)
    pad_token_id: int = Field(ge=0)
    unicode_form: UnicodeForm
    takes_pairs: bool
    precision: Precision
    model_inputs: tuple[TokenInput, ...]
    tokenizer_file: FileName
    merge_file: FileName
    stages: tuple[StageEntry, ...] = Field(min_length=1)
    operating_points: tuple[OperatingPoint, ...] = ()
    default_point: str | None = None
    golden: tuple[GoldenExample, ...] = ()
    golden_tolerance: float = Field(gt=0, description="largest difference of a golden logit")
    provenance: Provenance
    files: dict[FileName, str]

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        first_layers = (1, *(layer + 1 for layer in self.exits[:-1]))
        stages = tuple((stage.first_layer, stage.exit_layer) for stage in self.stages)
        named = {self.tokenizer_file, self.merge_file, *(stage.file for stage in self.stages)}
        points = {point.name: point for point in self.operating_points}
        checks = {
            "exits must ascend": list(self.exits) == sorted(set(self.exits)),
            "the last exit must follow the last layer": self.exits[-1] == self.layers,
            "stages must match exits": stages == tuple(zip(first_layers, self.exits, strict=True)),
            "labels must differ": len(set(self.labels)) == len(self.labels),
            "length_buckets must ascend to max_length": list(self.length_buckets)
            == sorted(set(self.length_buckets))
            and self.length_buckets[-1] == self.max_length,
            "model_inputs must be input_ids, attention_mask, perhaps token_type_ids": (
                self.model_inputs in (_TOKEN_INPUTS[:2], _TOKEN_INPUTS)
            ),
            "golden examples must have one label, entropy and row of logits an exit": all(
                len(example.labels) == len(example.entropies) == len(self.exits)
                and [len(row) for row in example.logits] == [len(self.labels)] * len(self.exits)
                for example in self.golden
            ),
            "files must list every file that is named": set(self.files) == named,
            "operating points must have one threshold an exit": all(
                len(point.thresholds) == len(self.exits) for point in self.operating_points
            ),
            "operating points must have different names": len(points) == len(self.operating_points),
            "default_point must be an operating point": self.default_point is None
            or self.default_point in points,
        }
        broken = [message for message, holds in checks.items() if not holds]
        if broken:
            raise ValueError("; ".join(broken))
        return self

    def point(self, name: str) -> OperatingPoint:
        """The operating point of this name. Raises KeyError."""
        return {point.name: point for point in self.operating_points}[name]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle on disk whose digests were checked. identifier: 12 hex digits of its manifest."""

    path: Path
    manifest: BundleManifest
    identifier: str

    def text_encoder(self) -> TextEncoder:
        return TextEncoder.from_file(
            self.path / self.manifest.tokenizer_file,
            max_length=self.manifest.max_length,
            unicode_form=self.manifest.unicode_form,
            pad_token_id=self.manifest.pad_token_id,
        )


def load_bundle(path: Path) -> Bundle:
    """Reads a bundle and checks the digest of every file.

    Raises BundleError for a folder that is not a bundle, another format, or a damaged file.
    """
    manifest_path = path / MANIFEST_FILE
    try:
        content = manifest_path.read_bytes()
    except OSError as error:
        raise BundleError(
            f"{path} is not a bundle: cannot read {MANIFEST_FILE} ({error.strerror}). "
            "Make one with `patamar export`."
        ) from error
    try:
        manifest = BundleManifest.model_validate_json(content)
    except ValidationError as error:
        raise BundleError(f"{manifest_path} is damaged or of another format: {error}") from error
    check_digests(path, manifest.files)
    return Bundle(path, manifest, hashlib.sha256(content).hexdigest()[:12])


def check_digests(path: Path, files: Mapping[str, str]) -> None:
    """Raises BundleError where a file of the folder is missing or not what was sealed."""
    for name, digest in files.items():
        try:
            found = file_digest(path / name)
        except OSError as error:
            raise BundleError(
                f"{path / name} is missing or unreadable ({error.strerror}); copy the whole bundle"
            ) from error
        if found != digest:
            raise BundleError(
                f"{path / name} is not what was sealed (SHA-256 {found[:12]}…, sealed "
                f"{digest[:12]}…); copy the bundle again or export it anew"
            )


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hex. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
