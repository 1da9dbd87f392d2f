"""Every setting of the service, with its default and limits, and how they are read.

Each is an environment variable PATAMAR_<NAME>. Nothing else in the service reads the environment,
and nothing here changes once it is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from multi_exit.errors import ConfigurationError

PREFIX = "PATAMAR_"
LogLevel = Literal["debug", "info", "warning", "error"]


class Settings(BaseSettings):
    """What an operator may choose. Frozen; make it with `load_settings`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    bundle: Path = Field(description="folder of the sealed bundle to serve")
    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    provider: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="where stages run; cuda that is not to be had stops the start"
    )
    threads: int = Field(
        0, ge=0, description="threads of the stages; 0 reads the CPU quota and affinity"
    )
    api_key: SecretStr | None = Field(
        None, description="if set, /classify and /model want `Authorization: Bearer <key>`"
    )

    default_threshold: float | None = Field(
        None, ge=0, le=1, description="entropy threshold of requests that name no policy"
    )
    default_point: str | None = Field(
        None,
        min_length=1,
        description="operating point of requests that name no policy; without this and "
        "default_threshold it is the bundle's own default, or else full depth",
    )

    fastest_point: str | None = Field(
        None,
        min_length=1,
        description="operating point that no request may be faster than, at any exit",
    )
    slide_to_point: str | None = Field(
        None,
        min_length=1,
        description="under load, requests that name no policy may slide along certified points up "
        "to this one; without it none does",
    )
    slide_at_wait_seconds: float = Field(
        0.1,
        gt=0,
        description="expected wait from which requests slide; they slide back below half of it",
    )

    max_body_bytes: int = Field(2 * 2**20, gt=0, description="413 beyond this")
    max_texts: int = Field(1_000, gt=0, description="inputs a request; 422 beyond this")
    max_top_k: int = Field(100, gt=0, description="labels an answer may list; 422 beyond this")
    max_waiting_tokens: int = Field(
        200_000, gt=0, description="padded tokens accepted and not answered yet; 429 beyond this"
    )
    max_wait_seconds: float = Field(
        5.0,
        gt=0,
        description="429 where what waits already would take longer than this at full depth, by "
        "the stages' time at start-up",
    )
    max_tokenising_characters: int = Field(
        8_000_000, gt=0, description="characters that wait to become tokens; 429 beyond this"
    )
    max_batch_rows: int = Field(32, gt=0, description="texts that run a stage together, at most")
    max_batch_tokens: int = Field(
        2_048,
        gt=0,
        description="padded tokens that run a stage together, at most (one text always may); "
        "more pays on a GPU only",
    )

    request_timeout_seconds: float = Field(
        30.0, gt=0, description="504 for a request that is not answered by then"
    )
    body_timeout_seconds: float = Field(
        10.0, gt=0, description="408 for a request whose body has not arrived by then"
    )
    drain_seconds: int = Field(
        20, ge=1, description="after SIGTERM, time to answer what was accepted"
    )
    shadow_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of texts that also run to full depth, when nothing else waits, to watch "
        "for drift; 0.01 is a good choice",
    )
    max_shadow_rows: int = Field(
        32, gt=0, description="such texts at a time; those drawn beyond it are dropped"
    )
    drift_alpha: float = Field(
        0.01, gt=0, lt=1, description="chance of a false alarm in all time, an operating point"
    )
    drift_state_file: Path | None = Field(
        None, description="file that keeps evidence and alarms over a restart; one an instance"
    )
    shadow_log: Path | None = Field(
        None,
        description="file of JSON lines: entropy and label of every exit for each such text, never "
        "the text",
    )
    shadow_log_max_bytes: int = Field(
        100_000_000,
        ge=65_536,
        description="bound of that file and its predecessor, FILE.1, together",
    )
    log_level: LogLevel = Field("info", description="least severe level that is logged")

    @model_validator(mode="after")
    def _one_default(self) -> Self:
        if self.default_threshold is not None and self.default_point is not None:
            raise ValueError("set default_threshold or default_point, not both")
        return self

    @model_validator(mode="after")
    def _shadow_for_its_log(self) -> Self:
        if self.shadow_log is not None and self.shadow_share == 0:
            raise ValueError("shadow_log stays empty without shadow_share; set it above 0")
        return self


def load_settings(**given: Any) -> Settings:
    """Settings from the environment; what is given by name wins.

    Raises ConfigurationError for a wrong value and for a PATAMAR_ name that does not exist.
    """
    refuse_unknown_names(os.environ)
    refuse_more_workers(os.environ)
    try:
        return Settings(**given)
    except ValidationError as error:
        raise ConfigurationError(_sentence(error)) from error


def refuse_unknown_names(environment: Mapping[str, str]) -> None:
    """Raises ConfigurationError for a misspelt name: pydantic-settings would ignore it."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    unknown = sorted(
        name
        for name in environment
        if name.upper().startswith(PREFIX) and name.upper() not in known
    )
    if unknown:
        raise ConfigurationError(
            f"unknown setting {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )


def refuse_more_workers(environment: Mapping[str, str]) -> None:
    """Raises ConfigurationError where the environment asks uvicorn for several processes.

    One process owns the model and its metrics: a second one would answer /metrics with counters
    of its own, and a scrape would hit either.
    """
    wanted = environment.get("WEB_CONCURRENCY", "1")
    if wanted != "1":
        raise ConfigurationError(
            f"WEB_CONCURRENCY={wanted} asks for several processes, but one process owns the model "
            "and its metrics; unset it, and start more instances to scale"
        )


def _sentence(error: ValidationError) -> str:
    # The value is left out: it may be a secret.
    problems = []
    for problem in error.errors(include_url=False, include_input=False):
        names = [f"{PREFIX}{str(part).upper()}" for part in problem["loc"][:1]]
        message = problem["msg"].removeprefix("Value error, ")
        problems.append(": ".join([*names, message]))
    return "; ".join(problems)
