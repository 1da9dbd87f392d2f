"""Deployment files and the service's settings: the same names, and time enough to stop."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from service.settings import Settings

PREFIX = "PATAMAR_"
FILES = (
    "Dockerfile",
    "docker-compose.yml",
    "deploy/docker/compose.gpu.yml",
    "docs/operations.md",
)


@pytest.mark.parametrize("file", FILES)
def test_settings_that_are_named_exist(file: str, root: Path) -> None:
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    named = set(re.findall(rf"\b{PREFIX}[A-Z_]*[A-Z]\b", (root / file).read_text("utf-8")))
    assert named <= known


def test_nobody_kills_the_service_before_it_has_answered_what_it_accepted(root: Path) -> None:
    drain: float = Settings.model_fields["drain_seconds"].default
    compose = yaml.safe_load((root / "docker-compose.yml").read_text(encoding="utf-8"))
    grace = compose["services"]["patamar"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) >= drain + 10

    manifest = (root / "deploy" / "kubernetes" / "patamar.yaml").read_text(encoding="utf-8")
    (deployment,) = [
        found for found in yaml.safe_load_all(manifest) if found["kind"] == "Deployment"
    ]
    pod = deployment["spec"]["template"]["spec"]
    (before_stop,) = re.findall(r"time\.sleep\((\d+)\)", manifest)
    assert pod["terminationGracePeriodSeconds"] >= int(before_stop) + drain + 10
