"""The dashboard's table of contents; run as a program it writes the JSON that Grafana loads."""

from __future__ import annotations

from string import ascii_uppercase
from typing import cast

from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DatasourceVariable,
    QueryVariable,
    Row,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    Panel,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import Dataquery

from deploy.grafana import GENERATED, drift, exits, health, latency, style, traffic
from service import metric_names as names


def dashboard() -> Dashboard:
    """All panels, in the order in which the engineer on call reads them."""
    return (
        _empty_dashboard()
        .with_row(Row("At a glance"))
        .with_panel(health.ready())
        .with_panel(traffic.request_rate_now())
        .with_panel(latency.p99_now())
        .with_panel(exits.average_exit_layer_now())
        .with_panel(exits.layers_saved_now())
        .with_panel(health.non_finite_rows())
        .with_row(Row("Exits"))
        .with_panel(exits.average_exit_layer())
        .with_panel(exits.exit_heatmap())
        .with_panel(exits.exit_distribution())
        .with_panel(exits.layers_saved())
        .with_row(Row("Traffic"))
        .with_panel(traffic.requests_by_outcome())
        .with_panel(traffic.responses_by_status())
        .with_panel(traffic.rejected_by_reason())
        .with_panel(traffic.truncated_share())
        .with_row(Row("Latency"))
        .with_panel(latency.request_latency())
        .with_panel(latency.waiting())
        .with_panel(latency.stage_time())
        .with_panel(latency.micro_batch_rows())
        .with_row(Row("Drift"))
        .with_panel(drift.suspended_points())
        .with_panel(drift.e_value())
        .with_panel(drift.disagreement())
        .with_panel(drift.shadow_rows())
        .with_panel(drift.shadow_cost())
        .with_row(Row("Load and health"))
        .with_panel(health.rows_in_flight())
        .with_panel(health.waiting_tokens())
        .with_panel(health.bundles().span(24))
    )


def render() -> str:
    """The dashboard as Grafana's JSON, stable from run to run."""
    built = dashboard().build()
    for number, panel in enumerate(built.panels or [], start=1):
        panel.id_val = number  # links to a panel survive a reload only if its number is ours
        if isinstance(panel, Panel):
            for letter, target in zip(ascii_uppercase, panel.targets or [], strict=False):
                cast(Dataquery, target).ref_id = letter  # equal ids would hide all but one query
    return JSONEncoder(sort_keys=True, indent=2).encode(built) + "\n"


def _empty_dashboard() -> Dashboard:
    return (
        Dashboard("Patamar")
        .uid("patamar")
        .description("At which layer texts leave, what that saves, and whether all is well.")
        .tags(["patamar"])
        .readonly()
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .annotations([])
        .with_variable(DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_label_variable("job", f"label_values({names.READY}, job)"))
        .with_variable(
            _label_variable("instance", f'label_values({names.READY}{{job=~"$job"}}, instance)')
        )
    )


def _label_variable(name: str, query: str) -> QueryVariable:
    return (
        QueryVariable(name)
        .label(name.capitalize())
        .datasource(style.DATASOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .include_all(True)
        .all_value(".+")
        .multi(True)
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


if __name__ == "__main__":
    GENERATED.write_text(render(), encoding="utf-8")
