"""The Kubernetes example: valid by the API's schemas, and of one piece with image and service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

KUBERNETES_VERSION = "1.31"


@pytest.fixture(scope="module")
def objects(root: Path) -> dict[str, dict[str, Any]]:
    text = (root / "deploy" / "kubernetes" / "patamar.yaml").read_text(encoding="utf-8")
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def container(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    containers: list[dict[str, Any]] = objects["Deployment"]["spec"]["template"]["spec"][
        "containers"
    ]
    (only,) = containers
    return only


def test_manifests_follow_the_apis_schemas(objects: dict[str, dict[str, Any]]) -> None:
    validator = pytest.importorskip(
        "kubernetes_validate", reason="PyPI's kubernetes-validate is not installed"
    )
    for manifest in objects.values():
        validator.validate(manifest, KUBERNETES_VERSION, strict=True)


def test_all_objects_speak_of_the_same_pods(objects: dict[str, dict[str, Any]]) -> None:
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert objects["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["Service"]["spec"]["selector"] == labels
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    target = objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert target["name"] == objects["Deployment"]["metadata"]["name"]


def test_the_autoscaler_alone_counts_replicas(objects: dict[str, dict[str, Any]]) -> None:
    assert "replicas" not in objects["Deployment"]["spec"]


def test_readiness_and_liveness_ask_different_questions(container: dict[str, Any]) -> None:
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["startupProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_the_pod_runs_as_the_images_user_on_the_images_port(
    objects: dict[str, dict[str, Any]], container: dict[str, Any], root: Path
) -> None:
    dockerfile = (root / "Dockerfile").read_text(encoding="utf-8")
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    assert re.findall(r"^USER (\S+)$", dockerfile, re.M) == [user]
    (port,) = container["ports"]
    assert re.findall(r"^EXPOSE (\d+)$", dockerfile, re.M) == [str(port["containerPort"])]
    assert objects["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]


def test_kubernetes_adds_no_settings_of_its_own(objects: dict[str, dict[str, Any]]) -> None:
    # A Service named patamar gives every pod PATAMAR_PORT=tcp://…, which stops the start.
    assert objects["Deployment"]["spec"]["template"]["spec"]["enableServiceLinks"] is False
