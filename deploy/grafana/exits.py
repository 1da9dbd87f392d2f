"""At which layer texts leave, and what that saves."""

from __future__ import annotations

from grafana_foundation_sdk.builders import bargauge, heatmap, stat, timeseries

from deploy.grafana import style
from deploy.grafana.style import OVER_TIME, WHOLE_RANGE
from deploy.promql import Scope
from service import metric_names as names

# Every answer lies in a bucket of a layer: +Inf adds nothing but an empty row.
_LAYER_BUCKETS = 'le!="+Inf"'


def average_exit_layer_now() -> stat.Panel:
    return (
        style.single(
            "Average exit layer",
            "Mean layer after which texts left, over the whole shown range and all instances.",
            style.LAYERS,
        )
        .with_target(style.instant(WHOLE_RANGE.mean(names.ANSWER_EXIT_LAYER), "average"))
        .decimals(2)
    )


def layers_saved_now() -> stat.Panel:
    return (
        style.single(
            "Layers saved",
            "Share of the layers of full depth that were not run, over the whole shown range.",
            style.SHARE,
        )
        .with_target(style.instant(_layers_saved(WHOLE_RANGE), "saved"))
        .decimals(1)
    )


def average_exit_layer() -> timeseries.Panel:
    return (
        style.time_series(
            "Average exit layer over time",
            "rate(sum) over rate(count), summed over instances. A jump means harder texts, a "
            "stricter policy in requests, or another bundle; at full depth nothing leaves early.",
            style.LAYERS,
        )
        .with_target(style.query(OVER_TIME.mean(names.ANSWER_EXIT_LAYER), "average exit layer"))
        .with_target(style.query(f"max({OVER_TIME.series(names.MODEL_LAYERS)})", "full depth"))
    )


def exit_heatmap() -> heatmap.Panel:
    return style.bucket_heatmap(
        "Exit layers over time",
        "Answers a second by exit layer, a row for each layer. A band that moves up means that "
        "texts need more layers; two bands mean two kinds of texts or of policies.",
        style.ANSWERS_PER_SECOND,
    ).with_target(style.buckets(_by_layer_over_time()))


def exit_distribution() -> bargauge.Panel:
    return style.bars(
        "Answers by exit layer",
        "Answers that left after each layer, within the shown range. Layers without an exit stay "
        "at 0; much at the last layer means that the thresholds rarely let texts go.",
        style.COUNT,
    ).with_target(
        style.buckets(
            WHOLE_RANGE.increase(
                f"{names.ANSWER_EXIT_LAYER}_bucket", by="le", matcher=_LAYER_BUCKETS
            )
        ).instant()
    )


def layers_saved() -> timeseries.Panel:
    return (
        style.time_series(
            "Layers saved over time",
            "Layers not run over layers of full depth. This is the compute that early exits save, "
            "before the cost of scheduling; 0 % means that everything runs to full depth.",
            style.SHARE,
        )
        .with_target(style.query(_layers_saved(OVER_TIME), "saved"))
        .max(1)
    )


def _by_layer_over_time() -> str:
    return OVER_TIME.rate(f"{names.ANSWER_EXIT_LAYER}_bucket", by="le", matcher=_LAYER_BUCKETS)


def _layers_saved(scope: Scope) -> str:
    return scope.share(names.LAYERS_SAVED, names.LAYERS_SAVED, names.LAYERS_RUN)
