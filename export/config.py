"""Settings of an export: what is promised, at which levels, and how closely graphs must agree."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from multi_exit.calibration import CalibrationConfig
from multi_exit.configuration import read_toml, validate


class ExportConfig(CalibrationConfig):
    """Content of an export configuration file (TOML). Every key has a default."""

    name: str = Field("classifier", min_length=1, description="name of the bundle")
    tolerance: float = Field(
        1e-4, gt=0, description="largest difference of a logit between torch and the graphs"
    )
    golden_texts: int = Field(4, ge=1, description="texts whose answers are sealed in the bundle")
    length_buckets: tuple[int, ...] | None = Field(
        None, description="padded lengths, ascending; finer steps for short texts where absent"
    )


def load_export_config(path: Path) -> ExportConfig:
    """Reads an export configuration. Raises ConfigurationError that names file and key."""
    return validate(ExportConfig, read_toml(path), path)
