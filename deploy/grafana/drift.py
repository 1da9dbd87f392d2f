"""Whether live texts still are what the operating points were calibrated for."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.builders.common import ScaleDistributionConfig
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.models.common import ScaleDistribution
from grafana_foundation_sdk.models.dashboard import Threshold, ThresholdsMode

from deploy.grafana import style
from deploy.grafana.style import OVER_TIME
from deploy.promql import or_zero, ratio
from service import metric_names as names

_NOT_WATCHED = "A line at 0 without a name: no point is watched (shadow_share is 0, or none is "
_NOT_WATCHED += "certified)."


def suspended_points() -> stat.Panel:
    suspended = f"sum(max by (point) ({OVER_TIME.series(names.DRIFT_ALARM)}))"
    steps = [Threshold(value=None, color="green"), Threshold(value=1, color="orange")]
    return (
        style.single(
            "Points suspended by drift",
            "Operating points that broke their promise on live texts: their requests get full "
            "depth until a newly calibrated bundle is served.",
            style.COUNT,
            span=6,
        )
        .with_target(style.instant(or_zero(suspended), "points"))
        .decimals(0)
        .height(style.PANEL_HEIGHT)
        .thresholds(ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    )


def e_value() -> timeseries.Panel:
    evidence = f"max by (point) ({OVER_TIME.series(names.DRIFT_E_VALUE)})"
    return (
        style.time_series(
            "Evidence of drift",
            "The e-value of each certified point, of the worst instance: 1 is no evidence, and at "
            f"1 / drift_alpha (100 by default) the point is suspended. {_NOT_WATCHED}",
            style.COUNT,
            span=9,
        )
        .with_target(style.query(or_zero(evidence), "{{point}}"))
        .scale_distribution(ScaleDistributionConfig().type(ScaleDistribution.SYMLOG).log(10))
    )


def disagreement() -> timeseries.Panel:
    share = f"max by (point) ({OVER_TIME.series(names.DRIFT_DISAGREEMENT_RATIO)})"
    return style.time_series(
        "Disagreement with full depth",
        "Share of shadow texts, since watching began, that a point labels otherwise than full "
        f"depth; compare it with what the point promises (GET /model). {_NOT_WATCHED}",
        style.SHARE,
        span=9,
    ).with_target(style.query(or_zero(share), "{{point}}"))


def shadow_rows() -> timeseries.Panel:
    rows = OVER_TIME.rate(names.SHADOW_ROWS, by="outcome")
    return style.stacked(
        "Shadow rows",
        "Texts drawn to run to full depth, by what became of them. Only measured ones count. Many "
        "dropped: the device is never idle, so drift goes unseen; add instances.",
        style.ROWS_PER_SECOND,
    ).with_target(style.query(rows, "{{outcome}}"))


def shadow_cost() -> timeseries.Panel:
    extra, layers = OVER_TIME.rate(names.SHADOW_LAYERS_RUN), OVER_TIME.rate(names.LAYERS_RUN)
    return style.time_series(
        "Cost of watching",
        "Layers run for shadow rows after their answer, over layers run for answers. They run "
        "where nothing else waits.",
        style.SHARE,
    ).with_target(style.query(ratio(extra, layers), "extra layers"))
