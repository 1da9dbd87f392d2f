"""Every setting of the service, in one object; nothing else reads the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from multi_exit.errors import ConfigurationError
from multi_exit.runner import ProviderChoice

_PREFIX = "PATAMAR_"


class Settings(BaseSettings):
    """Settings, each also an environment variable PATAMAR_NAME."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="forbid")

    bundle: Path = Field(description="sealed bundle to serve")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    provider: ProviderChoice = Field("auto", description="where stages run: auto, cpu or cuda")
    threads: int = Field(0, ge=0, description="threads of the stages; 0 for all there are")
    default_threshold: float | None = Field(
        None,
        ge=0,
        le=1,
        description="entropy threshold of requests that name none; else the bundle's default point",
    )
    default_point: str | None = Field(
        None, description="operating point of requests that name nothing, instead of the bundle's"
    )
    max_body_bytes: int = Field(4 * 2**20, gt=0, description="413 beyond this")
    max_texts: int = Field(1024, gt=0, description="texts of one request; 422 beyond this")
    max_waiting_tokens: int = Field(
        200_000, gt=0, description="padded tokens admitted and not yet answered; 429 beyond this"
    )
    max_batch_rows: int = Field(32, gt=0, description="texts of one micro-batch")
    max_batch_tokens: int = Field(4096, gt=0, description="padded tokens of one micro-batch")
    max_top_k: int = Field(100, gt=0, description="largest top_k of a request; 422 beyond this")
    request_timeout_seconds: float = Field(30.0, gt=0, description="504 beyond this")
    body_timeout_seconds: float = Field(
        10.0, gt=0, description="time for a request's body to arrive; 408 beyond this"
    )
    drain_seconds: int = Field(
        20, gt=0, description="time to answer what was accepted after SIGTERM"
    )
    max_tokenising_characters: int = Field(
        8 * 2**20, gt=0, description="characters that wait to be tokenised; 429 beyond this"
    )
    api_key: SecretStr | None = Field(
        None, description="if set, /classify and /model ask for it: Authorization: Bearer KEY"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info")


def load_settings(**given: Any) -> Settings:
    """Settings from arguments, then environment, then defaults.

    Raises ConfigurationError that names every wrong value, and every PATAMAR_ variable that is
    no setting: a misspelt one would be ignored in silence.
    """
    known = {f"{_PREFIX}{name}".upper() for name in Settings.model_fields}
    unknown = sorted(
        name
        for name in os.environ
        if name.upper().startswith(_PREFIX) and name.upper() not in known
    )
    if unknown:
        raise ConfigurationError(
            f"unknown environment variable {unknown[0]}; known are {', '.join(sorted(known))}"
        )
    try:
        return Settings(**given)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc']))} (or {_PREFIX}"
            f"{'_'.join(map(str, problem['loc'])).upper()}): {problem['msg']}"
            for problem in error.errors()
        )
        raise ConfigurationError(f"settings: {problems}") from error
