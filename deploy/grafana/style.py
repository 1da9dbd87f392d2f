"""How our panels look: builders with the title, description and unit that every panel must have."""

from __future__ import annotations

from grafana_foundation_sdk.builders import bargauge, common, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import table as table_panel
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models.dashboard import DataSourceRef
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from deploy.promql import Scope

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
MATCHERS = 'job=~"$job", instance=~"$instance"'

# Grafana widens $__rate_interval with the step, so that no scrape falls between two points.
OVER_TIME = Scope(matchers=MATCHERS, window="$__rate_interval")
WHOLE_RANGE = Scope(matchers=MATCHERS, window="$__range")

SECONDS = "s"
SHARE = "percentunit"
LAYERS = "suffix: layers"
PER_SECOND = "reqps"
ANSWERS_PER_SECOND = "suffix: answers/s"
ROWS = "suffix: rows"
ROWS_PER_SECOND = "suffix: rows/s"
TOKENS = "suffix: tokens"
COUNT = "short"

PANEL_HEIGHT = 8
STAT_HEIGHT = 4


def query(expression: str, legend: str) -> prometheus.Dataquery:
    """A range query; `legend` may hold {{label}}."""
    return (
        prometheus.Dataquery().datasource(DATASOURCE).expr(expression).legend_format(legend).range()
    )


def instant(expression: str, legend: str) -> prometheus.Dataquery:
    """A query for the value at the end of the shown range."""
    return query(expression, legend).instant()


def buckets(expression: str) -> prometheus.Dataquery:
    """A histogram by `le`; Grafana takes the cumulative buckets apart and sorts them."""
    return query(expression, "{{le}}").format(PromQueryFormat.HEATMAP)


def time_series(title: str, description: str, unit: str, *, span: int = 12) -> timeseries.Panel:
    """Lines over time, with a table of last and largest values below."""
    legend = (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(common_models.LegendDisplayMode.TABLE)
        .placement(common_models.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
    )
    return (
        timeseries.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .span(span)
        .height(PANEL_HEIGHT)
        .min(0)
        .fill_opacity(8)
        .legend(legend)
        .tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
    )


def stacked(title: str, description: str, unit: str, *, span: int = 12) -> timeseries.Panel:
    """Time series that add up to a whole."""
    stacking = common.StackingConfig().mode(common_models.StackingMode.NORMAL)
    return time_series(title, description, unit, span=span).fill_opacity(40).stacking(stacking)


def single(title: str, description: str, unit: str, *, span: int = 4) -> stat.Panel:
    """One large number."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .span(span)
        .height(STAT_HEIGHT)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )


def bars(title: str, description: str, unit: str, *, span: int = 12) -> bargauge.Panel:
    """One horizontal bar for each series, for the whole shown range."""
    return (
        bargauge.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .span(span)
        .height(PANEL_HEIGHT)
        .min(0)
        .orientation(common_models.VizOrientation.HORIZONTAL)
        .display_mode(common_models.BarGaugeDisplayMode.BASIC)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )


def bucket_heatmap(title: str, description: str, unit: str, *, span: int = 12) -> heatmap.Panel:
    """A Prometheus histogram over time, a row for each bucket; `unit` is that of the cells."""
    return (
        heatmap.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .span(span)
        .height(PANEL_HEIGHT)
        .calculate(False)
        .cell_values(heatmap.CellValues().unit(unit))
        .color(
            heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(32)
        )
    )


def table(title: str, description: str, unit: str, *, span: int = 12) -> table_panel.Panel:
    """A row for each series, a column for each label."""
    return (
        table_panel.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .span(span)
        .height(PANEL_HEIGHT)
    )
