"""The dashboard: up to date, complete, readable, and only about metrics that the service has."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.grafana import GENERATED
from deploy.grafana.main import render
from service import metric_names

PANELS: list[dict[str, Any]] = [
    panel for panel in json.loads(render())["panels"] if panel["type"] != "row"
]


def by_title(panel: dict[str, Any]) -> str:
    return str(panel["title"])


def test_the_committed_dashboard_is_what_the_code_says() -> None:
    assert GENERATED.read_text(encoding="utf-8") == render(), "run python -m deploy.grafana.main"


@pytest.mark.parametrize("panel", PANELS, ids=by_title)
def test_every_panel_has_a_unit_a_description_and_queries(panel: dict[str, Any]) -> None:
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["description"].endswith(".")
    letters = [target["refId"] for target in panel["targets"]]
    assert letters
    assert len(set(letters)) == len(letters)
    assert all(target["expr"] for target in panel["targets"])


def test_titles_and_numbers_are_unique() -> None:
    panels = json.loads(render())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(render())["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_rows_stand_above_their_panels() -> None:
    ys = [panel["gridPos"]["y"] for panel in json.loads(render())["panels"]]
    assert all(above <= below for above, below in pairwise(ys))


@pytest.mark.parametrize("panel", PANELS, ids=by_title)
def test_every_query_asks_for_metrics_that_the_service_has(panel: dict[str, Any]) -> None:
    known = {
        value
        for name, value in vars(metric_names).items()
        if name.isupper() and isinstance(value, str)
    }
    for target in panel["targets"]:
        asked = set(re.findall(r"patamar_\w+", target["expr"]))
        assert asked
        assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} <= known


@pytest.mark.parametrize("panel", PANELS, ids=by_title)
def test_every_selector_obeys_the_dashboards_variables(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        selectors = re.findall(r"patamar_\w+(\{[^}]*\})?", target["expr"])
        assert all('job=~"$job", instance=~"$instance"' in selector for selector in selectors)


def test_grafana_finds_data_source_and_dashboard(root: Path) -> None:
    provisioning = root / "deploy" / "grafana" / "provisioning"
    source = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text("utf-8"))
    provider = yaml.safe_load((provisioning / "dashboards" / "patamar.yml").read_text("utf-8"))
    compose = yaml.safe_load((root / "docker-compose.yml").read_text("utf-8"))
    scrape = yaml.safe_load((root / "deploy" / "prometheus" / "prometheus.yml").read_text("utf-8"))
    (datasource,) = source["datasources"]
    assert datasource["url"] == "http://prometheus:9090"
    assert datasource["jsonData"]["timeInterval"] == scrape["global"]["scrape_interval"]
    (folder,) = [entry["options"]["path"] for entry in provider["providers"]]
    mounts = {
        target: source
        for source, target, *_ in (
            volume.split(":") for volume in compose["services"]["grafana"]["volumes"]
        )
    }
    assert (root / mounts[folder]).resolve() == GENERATED.parent
    home = compose["services"]["grafana"]["environment"][
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"
    ]
    assert home == f"{folder}/{GENERATED.name}"
