"""Alert rules: valid, up to date, each with a case that fires, one that must not, and a runbook."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from deploy.alerts.main import GENERATED, RUNBOOK, render
from deploy.alerts.rules import JOB, all_alerts

Run = Callable[..., "subprocess.CompletedProcess[str]"]
CASES = "alerts.test.yml"


def test_the_committed_rules_are_what_the_code_says() -> None:
    assert GENERATED.read_text(encoding="utf-8") == render(), "run python -m deploy.alerts.main"


def test_prometheus_takes_the_configuration_and_the_rules(run: Run) -> None:
    folder = GENERATED.parent
    for arguments in (
        ("check", "config", folder / "prometheus.yml"),
        ("check", "rules", "--lint-fatal", folder / "alerts.yml"),
    ):
        result = run("promtool", *arguments)
        assert result.returncode == 0, result.stdout + result.stderr


def test_the_scraped_job_is_the_one_that_alerts_watch() -> None:
    configuration = yaml.safe_load((GENERATED.parent / "prometheus.yml").read_text("utf-8"))
    assert JOB in {job["job_name"] for job in configuration["scrape_configs"]}


def test_every_alert_fires_when_it_should_and_only_then(run: Run) -> None:
    result = run("promtool", "test", "rules", Path(__file__).parent / CASES)
    assert result.returncode == 0, result.stdout + result.stderr


# Mutation by hand, made permanent: without both cases a broken rule would pass.
@pytest.mark.parametrize("broken", ["vector(0) > 1", "vector(1)"], ids=["never", "always"])
def test_rules_that_never_or_always_fire_fail_the_cases_of_every_alert(
    broken: str, run: Run, tmp_path: Path
) -> None:
    rules = yaml.safe_load(render())
    for rule in rules["groups"][0]["rules"]:
        rule["expr"] = broken
    (tmp_path / "tests" / "deploy").mkdir(parents=True)
    (tmp_path / "deploy" / "prometheus").mkdir(parents=True)
    (tmp_path / "deploy" / "prometheus" / "alerts.yml").write_text(yaml.safe_dump(rules))
    cases = shutil.copy(Path(__file__).parent / CASES, tmp_path / "tests" / "deploy")
    result = run("promtool", "test", "rules", cases)
    assert result.returncode != 0
    caught = set(re.findall(r"alertname: ?(\w+)", result.stdout + result.stderr))
    assert caught == {alert.name for alert in all_alerts()}


def test_every_alert_has_a_runbook_that_says_what_to_do(root: Path) -> None:
    text = (root / RUNBOOK).read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", text, flags=re.M | re.S))
    for alert in all_alerts():
        assert "**Do:**" in sections[alert.name], alert.name
    surplus = {name for name in sections if name.startswith("Patamar")}
    assert surplus == {alert.name for alert in all_alerts()}
