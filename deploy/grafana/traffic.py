"""What arrives, and what becomes of it."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, timeseries

from deploy.grafana import style
from deploy.grafana.style import OVER_TIME
from service import metric_names as names


def request_rate_now() -> stat.Panel:
    return style.single(
        "Requests", "Requests a second that arrived.", style.PER_SECOND
    ).with_target(style.query(OVER_TIME.rate(names.REQUESTS_RECEIVED), "received"))


def requests_by_outcome() -> timeseries.Panel:
    rate = OVER_TIME.rate(names.REQUESTS_FINISHED, by="outcome")
    return style.stacked(
        "Requests by outcome",
        "Requests a second that ended as answered, failed, cancelled (the client left) or "
        "rejected (before any work). Their sum is what arrived, less what is under way.",
        style.PER_SECOND,
    ).with_target(style.query(rate, "{{outcome}}"))


def responses_by_status() -> timeseries.Panel:
    rate = OVER_TIME.rate(names.HTTP_RESPONSES, by="status")
    return style.stacked(
        "Responses by status",
        "HTTP responses a second by status code, probes and scrapes included. 429 is overload, "
        "other 4xx are clients' mistakes, 5xx are ours.",
        style.PER_SECOND,
    ).with_target(style.query(rate, "{{status}}"))


def rejected_by_reason() -> timeseries.Panel:
    rate = OVER_TIME.rate(names.REJECTED, by="reason")
    return style.stacked(
        "Rejected by reason",
        "Requests a second that were refused before any work, by reason.",
        style.PER_SECOND,
    ).with_target(style.query(rate, "{{reason}}"))


def truncated_share() -> timeseries.Panel:
    share = OVER_TIME.share(names.TRUNCATED, f"{names.ANSWER_EXIT_LAYER}_count")
    return style.time_series(
        "Truncated texts",
        "Texts that were cut at the model's length, over texts answered. Their answers ignore "
        "what was cut; split such texts, or train with a longer limit.",
        style.SHARE,
    ).with_target(style.query(share, "truncated"))
