"""Settings of an export: what is promised, at which levels, and how closely graphs must agree."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from multi_exit.configuration import read_toml, validate


class ExportConfig(BaseModel):
    """Content of an export configuration file (TOML). Every key has a default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("classifier", min_length=1, description="name of the bundle")
    epsilons: tuple[float, ...] = Field(
        (0.005, 0.01, 0.02, 0.05),
        description="shares of other labels than at full depth that are promised, each with its "
        "own certificate",
    )
    delta: float = Field(0.05, gt=0, lt=1, description="risk that a promise is broken")
    default_epsilon: float | None = Field(
        0.01,
        description="the server's default policy is the fastest point certified for this share; "
        "full depth where there is none, or where this is absent",
    )
    shown_thresholds: tuple[float, ...] = Field(
        (0.05, 0.1, 0.2, 0.3, 0.5), description="measured as operating points in any case"
    )
    tolerance: float = Field(
        1e-4, gt=0, description="largest difference of a logit between torch and the graphs"
    )
    golden_texts: int = Field(4, ge=1, description="texts whose answers are sealed in the bundle")
    length_buckets: tuple[int, ...] | None = Field(
        None, description="padded lengths, ascending; finer steps for short texts where absent"
    )

    @field_validator("epsilons", "shown_thresholds")
    @classmethod
    def _shares(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0.0 < value < 1.0 for value in values):
            raise ValueError("each value must lie strictly between 0 and 1")
        return tuple(sorted(set(values)))


def load_export_config(path: Path) -> ExportConfig:
    """Reads an export configuration. Raises ConfigurationError that names file and key."""
    return validate(ExportConfig, read_toml(path), path)
