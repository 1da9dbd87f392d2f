"""Whether the service can answer, with what, and how full it is."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.builders import table as table_panel
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.models.dashboard import (
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from deploy.grafana import style
from deploy.grafana.style import OVER_TIME
from service import metric_names as names


def ready() -> stat.Panel:
    mapping = ValueMap(
        options={"0": ValueMappingResult(text="not ready"), "1": ValueMappingResult(text="ready")},
    )
    steps = [Threshold(value=None, color="red"), Threshold(value=1, color="green")]
    return (
        style.single(
            "Ready",
            "The worst instance: ready means bundle verified, warmed, golden examples right.",
            "bool",
        )
        .with_target(style.instant(f"min({OVER_TIME.series(names.READY)})", "worst instance"))
        .mappings([mapping])
        .thresholds(ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    )


def non_finite_rows() -> stat.Panel:
    increase = style.WHOLE_RANGE.increase(names.NON_FINITE_ROWS)
    steps = [Threshold(value=None, color="green"), Threshold(value=1, color="red")]
    return (
        style.single(
            "Rows not finite",
            "Rows whose logits were NaN or infinite, within the shown range. Each got an error "
            "instead of an answer; more than none points to the model, not to the texts.",
            style.ROWS,
        )
        .with_target(style.instant(increase, "rows"))
        .decimals(0)
        .thresholds(ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    )


def rows_in_flight() -> timeseries.Panel:
    rows = f"sum by (stage) ({OVER_TIME.series(names.ROWS_IN_FLIGHT)})"
    return style.stacked(
        "Rows in flight",
        "Texts accepted and not yet answered, by the stage they wait for or run. All at stage 1 "
        "means that arrivals outrun the device.",
        style.ROWS,
    ).with_target(style.query(rows, "stage {{stage}}"))


def waiting_tokens() -> timeseries.Panel:
    tokens = f"sum by (instance) ({OVER_TIME.series(names.WAITING_TOKENS)})"
    return style.time_series(
        "Waiting tokens",
        "Tokens admitted and not yet answered, by instance. At the service's limit further "
        "requests get 429.",
        style.TOKENS,
    ).with_target(style.query(tokens, "{{instance}}"))


def bundles() -> table_panel.Panel:
    instances = f"count by (bundle, provider, precision) ({OVER_TIME.series(names.BUNDLE_INFO)})"
    return style.table(
        "Bundles being served",
        "How many instances serve which bundle, on which execution provider and precision. More "
        "than one line outside a rollout means that equal requests get different answers.",
        style.COUNT,
    ).with_target(style.instant(instances, "").format(PromQueryFormat.TABLE))
