"""How long requests take, and where the time goes."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, timeseries

from deploy.grafana import style
from deploy.grafana.style import OVER_TIME, WHOLE_RANGE
from service import metric_names as names


def p99_now() -> stat.Panel:
    return style.single(
        "Request p99",
        "99 of 100 requests were answered within this time, over the whole shown range.",
        style.SECONDS,
    ).with_target(style.instant(WHOLE_RANGE.quantile(0.99, names.REQUEST_SECONDS), "p99"))


def request_latency() -> timeseries.Panel:
    panel = style.time_series(
        "Request latency",
        "From the request's arrival to its answer, inside the service: p50, p95 and p99 over all "
        "instances. A p99 that leaves p50 behind means waiting or long texts.",
        style.SECONDS,
    )
    for share, legend in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99")):
        panel.with_target(style.query(OVER_TIME.quantile(share, names.REQUEST_SECONDS), legend))
    return panel


def waiting() -> timeseries.Panel:
    return (
        style.time_series(
            "Queue and tokenising time",
            "p99 and mean time that a text waits for its stages, and p99 time of tokenising. Queue "
            "time that grows while traffic does not means that the device is the limit.",
            style.SECONDS,
        )
        .with_target(style.query(OVER_TIME.quantile(0.99, names.QUEUE_SECONDS), "queue p99"))
        .with_target(style.query(OVER_TIME.mean(names.QUEUE_SECONDS), "queue mean"))
        .with_target(style.query(OVER_TIME.quantile(0.99, names.TOKENISE_SECONDS), "tokenise p99"))
    )


def stage_time() -> timeseries.Panel:
    return style.time_series(
        "Stage time",
        "Mean time of one stage over one micro-batch, by stage. Stages of equal depth should cost "
        "the same; the first one also holds the embeddings.",
        style.SECONDS,
    ).with_target(style.query(OVER_TIME.mean(names.STAGE_SECONDS, by="stage"), "stage {{stage}}"))


def micro_batch_rows() -> timeseries.Panel:
    return (
        style.time_series(
            "Rows in a micro-batch",
            "Rows that run a stage together: mean and p95. Near 1 under load means that texts "
            "seldom share a length bucket, or that there is no queue to fill batches from.",
            style.ROWS,
        )
        .with_target(style.query(OVER_TIME.mean(names.STAGE_ROWS), "mean"))
        .with_target(style.query(OVER_TIME.quantile(0.95, names.STAGE_ROWS), "p95"))
    )
