"""Dockerfile and compose files: linted, and held to what they promise. No container engine runs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.docker.requirements import FILES, declared

Run = Callable[..., "subprocess.CompletedProcess[str]"]
COMPOSE_FILES = ("docker-compose.yml", "deploy/docker/compose.gpu.yml")
BASE = "docker-compose.yml"


@pytest.fixture(scope="module")
def dockerfile(root: Path) -> str:
    """The Dockerfile without comments, a line for each instruction."""
    text = (root / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return re.sub(r"\\\n\s*", " ", "\n".join(lines))


@pytest.fixture(scope="module")
def stages(dockerfile: str) -> dict[str, str]:
    """Stage name to its instructions, together with those of the stages it is built from."""
    found: dict[str, str] = {}
    for block in re.split(r"^(?=FROM )", dockerfile, flags=re.M)[1:]:
        match = re.match(r"FROM (\S+) AS (\S+)", block)
        assert match is not None, f"a stage without a name: {block.splitlines()[0]}"
        found[match[2]] = found.get(match[1], "") + block
    return found


def test_hadolint_finds_nothing(run: Run) -> None:
    result = run("hadolint", "--no-color", "--failure-threshold", "style", "Dockerfile")
    assert result.returncode == 0, result.stdout + result.stderr


def test_compose_lint_finds_nothing(run: Run, root: Path) -> None:
    settings = Path(__file__).parent / "compose-lint.yml"
    result = run("compose-lint", "--config", settings, "--fail-on", "low", "--no-env", BASE)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_compose_files_follow_the_compose_specification(file: str, root: Path) -> None:
    compose_spec = pytest.importorskip("compose_spec", reason="PyPI's compose-spec (extra dev)")
    options = compose_spec.PyOptions(apply_merge=True)
    options.from_yaml(_with_defaults((root / file).read_text(encoding="utf-8"))).validate()


def test_images_without_a_target_are_cpu_images(stages: dict[str, str]) -> None:
    assert list(stages)[-1] == "cpu"


@pytest.mark.parametrize("target", ["cpu", "gpu", "cpu-baked", "gpu-baked"])
def test_images_run_without_root_and_are_asked_whether_they_are_ready(
    target: str, stages: dict[str, str]
) -> None:
    image = stages[target]
    assert re.findall(r"^USER (.+)$", image, re.M) == ["10001:10001"]
    assert 'ENTRYPOINT ["patamar", "serve"]' in image
    assert "STOPSIGNAL SIGTERM" in image
    assert "/readyz" in re.findall(r"HEALTHCHECK .+", image)[0]


def test_base_images_are_pinned_by_a_full_version(dockerfile: str, stages: dict[str, str]) -> None:
    (python,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", dockerfile, re.M)
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", python)
    bases = set(re.findall(r"^FROM (\S+)", dockerfile, re.M))
    assert bases - set(stages) == {"${PYTHON_IMAGE}", "scratch"}


def test_no_layer_keeps_a_package_cache(dockerfile: str) -> None:
    for command in re.findall(r"pip (?:install|wheel) [^&\n]*", dockerfile):
        assert "--no-cache-dir" in command


def test_what_the_wheel_stage_copies_reaches_the_build(stages: dict[str, str], root: Path) -> None:
    allowed = set(re.findall(r"^!(\S+)$", (root / ".dockerignore").read_text("utf-8"), re.M))
    copied = set()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", stages["wheel"], re.M):
        copied |= set(sources.split())
    assert copied == allowed
    assert all((root / name).exists() for name in copied)


@pytest.mark.parametrize("extra", ["serve", "gpu"])
def test_images_pin_what_pyproject_asks_for(extra: str) -> None:
    packaging = pytest.importorskip("packaging.requirements")
    lines = FILES[extra].read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    for text in declared(extra):
        requirement = packaging.Requirement(text)
        assert requirement.specifier.contains(pins[requirement.name.lower()]), text
    assert {"torch", "transformers"}.isdisjoint(pins)


def test_a_gpu_image_holds_one_onnxruntime_only() -> None:
    names = {line.split("==")[0] for line in FILES["gpu"].read_text("utf-8").splitlines()}
    assert "onnxruntime-gpu" in names
    assert "onnxruntime" not in names


@pytest.fixture(scope="module")
def compose(root: Path) -> dict[str, Any]:
    text = _with_defaults((root / BASE).read_text(encoding="utf-8"))
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def test_compose_mounts_files_that_exist_and_volumes_that_are_declared(
    compose: dict[str, Any], root: Path
) -> None:
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source, _, *options = volume.split(":")
            if not source.startswith("."):
                assert source in compose["volumes"]
                continue
            assert options == ["ro"]
            # The bundle is the user's to make; all else is in the repository.
            assert source == "./build/quickstart/bundle" or (root / source).exists()


def test_compose_publishes_to_this_machine_alone_and_pins_images(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert service["read_only"]
        tag = service["image"].partition(":")[2]
        assert tag
        assert tag != "latest"


def test_every_container_has_a_health_check(
    compose: dict[str, Any], stages: dict[str, str]
) -> None:
    for service in compose["services"].values():
        if "build" in service:
            assert "HEALTHCHECK" in stages[service["build"]["target"]]
        else:
            assert service["healthcheck"]["test"]


def test_prometheus_scrapes_the_container_by_its_name(compose: dict[str, Any], root: Path) -> None:
    configuration = yaml.safe_load(
        (root / "deploy" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    )
    (job,) = [job for job in configuration["scrape_configs"] if job["job_name"] == "patamar"]
    (target,) = job["static_configs"][0]["targets"]
    name, port = target.split(":")
    assert compose["services"][name]["ports"][0].endswith(f":{port}")


def test_the_gpu_file_only_changes_services_that_exist(
    compose: dict[str, Any], stages: dict[str, str], root: Path
) -> None:
    override = yaml.safe_load((root / COMPOSE_FILES[1]).read_text(encoding="utf-8"))
    assert set(override["services"]) <= set(compose["services"])
    assert override["services"]["patamar"]["build"]["target"] in stages


def test_composes_variables_are_documented_and_are_no_settings_of_the_service(root: Path) -> None:
    variables = set(re.findall(r"\$\{(\w+)", (root / BASE).read_text(encoding="utf-8")))
    documentation = (root / "docs" / "operations.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in documentation for name in variables)
    # A host that exports one and runs the service without compose would be refused for it.
    assert not [name for name in variables if name.startswith("PATAMAR_")]


def _with_defaults(text: str) -> str:
    """Compose's ${NAME:-default}, with no variable set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
