"""Settings come from names that exist, and say in a sentence what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from multi_exit.errors import ConfigurationError
from service.settings import Settings, load_settings


def test_what_is_given_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATAMAR_PORT", "9000")
    monkeypatch.setenv("PATAMAR_MAX_TEXTS", "7")
    settings = load_settings(bundle=Path("b"), port=1234)
    assert (settings.port, settings.max_texts) == (1234, 7)


@pytest.mark.parametrize("name", ["PATAMAR_MAX_BATCH_ROW", "PATAMAR_", "patamar_workers"])
def test_a_name_that_is_no_setting_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(ConfigurationError, match=f"unknown setting {name}.*PATAMAR_MAX_BATCH_ROWS"):
        load_settings(bundle=Path("b"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "65536"),
        ("PROVIDER", "tpu"),
        ("THREADS", "-1"),
        ("DEFAULT_THRESHOLD", "nan"),
        ("MAX_TEXTS", "0"),
        ("MAX_WAITING_TOKENS", "many"),
        ("DRAIN_SECONDS", "0"),
    ],
)
def test_a_wrong_value_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"PATAMAR_{name}", value)
    with pytest.raises(ConfigurationError, match=f"PATAMAR_{name}"):
        load_settings(bundle=Path("b"))


def test_a_missing_bundle_is_named_by_its_variable() -> None:
    with pytest.raises(ConfigurationError, match="PATAMAR_BUNDLE: Field required"):
        load_settings()


def test_two_defaults_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        load_settings(bundle=Path("b"), default_threshold=0.1, default_point="fast")


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    with pytest.raises(ConfigurationError, match="one process owns the model"):
        load_settings(bundle=Path("b"))


def test_a_secret_is_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATAMAR_API_KEY", "hunter2")
    monkeypatch.setenv("PATAMAR_PORT", "hunter2")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(bundle=Path("b"))
    assert "hunter2" not in str(caught.value)
    monkeypatch.delenv("PATAMAR_PORT")
    assert "hunter2" not in repr(load_settings(bundle=Path("b")))


def test_settings_do_not_change_once_read() -> None:
    settings = Settings(bundle=Path("b"))
    with pytest.raises(ValidationError):
        settings.port = 1


def test_every_setting_says_what_it_means() -> None:
    assert all(field.description for field in Settings.model_fields.values())


def test_a_shadow_log_that_would_stay_empty_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="stays empty without shadow_share"):
        load_settings(bundle=Path("b"), shadow_log=Path("shadow.jsonl"))
    load_settings(bundle=Path("b"), shadow_log=Path("shadow.jsonl"), shadow_share=0.01)
