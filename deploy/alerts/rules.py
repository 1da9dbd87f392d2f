"""What wakes somebody up, and at which numbers.

Each alert has an entry of the same name in docs/operations.md that says what to do, and two cases
in tests/deploy/alerts.test.yml: one where it fires, one beside it where it must not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deploy.promql import Scope, or_zero, ratio
from service import metric_names as names

JOB = "patamar"  # the scrape job's name in deploy/prometheus/prometheus.yml

_TWO_MINUTES = Scope(matchers="", window="2m")
_FIVE_MINUTES = Scope(matchers="", window="5m")
_QUARTER_HOUR = Scope(matchers="", window="15m")
_DAY = Scope(matchers="", window="1d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A query compared with a number: apart, so that a test can see that the query has data."""

    signal: str
    comparison: Literal["<", "<=", "==", ">=", ">"]
    threshold: float

    def __str__(self) -> str:
        return f"{self.signal} {self.comparison} {self.threshold:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One rule. It fires when all its conditions hold, without a gap, for `hold`."""

    name: str
    conditions: tuple[Condition, ...]
    hold: str  # a PromQL duration
    severity: Literal["critical", "warning"]  # critical: callers notice now
    summary: str  # may use {{ $labels.instance }} and {{ $value }}

    @property
    def expression(self) -> str:
        return " and ".join(str(condition) for condition in self.conditions)


def all_alerts() -> tuple[Alert, ...]:
    return (
        down(),
        not_ready(),
        stuck(),
        failing(),
        overloaded(),
        rejecting(),
        slow(),
        full_depth(),
        non_finite(),
        mixed_bundles(),
        drift(),
    )


def down() -> Alert:
    return Alert(
        name="PatamarDown",
        conditions=(Condition(signal=f'up{{job="{JOB}"}}', comparison="==", threshold=0),),
        hold="1m",
        severity="critical",
        summary="{{ $labels.instance }} does not answer Prometheus.",
    )


def not_ready() -> Alert:
    return Alert(
        name="PatamarNotReady",
        conditions=(Condition(signal=names.READY, comparison="==", threshold=0),),
        hold="2m",
        severity="critical",
        summary="{{ $labels.instance }} runs but takes no requests.",
    )


def stuck() -> Alert:
    """Rows wait and no stage runs: the worker ended or hangs, and requests wait for ever."""
    rows = f"sum by (instance) ({names.ROWS_IN_FLIGHT})"
    stages = _TWO_MINUTES.rate(f"{names.STAGE_ROWS}_count", by="instance")
    return Alert(
        name="PatamarStuck",
        conditions=(
            Condition(signal=rows, comparison=">", threshold=0),
            Condition(signal=stages, comparison="==", threshold=0),
        ),
        hold="1m",
        severity="critical",
        summary="{{ $labels.instance }} has {{ $value }} rows in flight and runs no stage.",
    )


def failing() -> Alert:
    share = _FIVE_MINUTES.share_matching(names.REQUESTS_FINISHED, 'outcome="failed"')
    return Alert(
        name="PatamarFailing",
        conditions=(Condition(signal=share, comparison=">", threshold=0.01),),
        hold="5m",
        severity="critical",
        summary="{{ $value | humanizePercentage }} of requests fail.",
    )


def overloaded() -> Alert:
    # Probes and scrapes would thin the share out.
    share = _FIVE_MINUTES.share_matching(
        names.HTTP_RESPONSES, 'status="429"', within='route="/classify"'
    )
    return Alert(
        name="PatamarOverloaded",
        conditions=(Condition(signal=share, comparison=">", threshold=0.01),),
        hold="5m",
        severity="warning",
        summary="{{ $value | humanizePercentage }} of responses are 429: too many tokens wait.",
    )


def rejecting() -> Alert:
    share = _FIVE_MINUTES.share_matching(names.REQUESTS_FINISHED, 'outcome="rejected"')
    return Alert(
        name="PatamarRejecting",
        conditions=(Condition(signal=share, comparison=">", threshold=0.2),),
        hold="10m",
        severity="warning",
        summary="{{ $value | humanizePercentage }} of requests are refused before any work.",
    )


def slow() -> Alert:
    p99 = _FIVE_MINUTES.quantile(0.99, names.REQUEST_SECONDS)
    return Alert(
        name="PatamarSlow",
        conditions=(Condition(signal=p99, comparison=">", threshold=1),),
        hold="10m",
        severity="warning",
        summary="1 in 100 requests takes longer than {{ $value | humanizeDuration }}.",
    )


def full_depth() -> Alert:
    """Texts that used to leave early no longer do.

    Compared with the last day, since a service that is meant to run to full depth is no alarm.
    """
    layers = f"max({names.MODEL_LAYERS})"
    now = ratio(_QUARTER_HOUR.mean(names.ANSWER_EXIT_LAYER), layers)
    usual = ratio(_DAY.mean(names.ANSWER_EXIT_LAYER), layers)
    return Alert(
        name="PatamarFullDepth",
        conditions=(
            Condition(signal=now, comparison=">=", threshold=0.95),
            Condition(signal=usual, comparison="<", threshold=0.8),
        ),
        hold="15m",
        severity="warning",
        summary="Texts leave after {{ $value | humanizePercentage }} of the layers; they used to "
        "leave earlier.",
    )


def non_finite() -> Alert:
    rows = f"increase({names.NON_FINITE_ROWS}[10m])"
    return Alert(
        name="PatamarNonFinite",
        conditions=(Condition(signal=rows, comparison=">", threshold=0),),
        hold="0m",
        severity="critical",
        summary="{{ $labels.instance }} computed NaN or infinite logits.",
    )


def mixed_bundles() -> Alert:
    bundles = f"count(count by (bundle) ({names.BUNDLE_INFO}))"
    return Alert(
        name="PatamarMixedBundles",
        conditions=(Condition(signal=bundles, comparison=">", threshold=1),),
        hold="1h",
        severity="warning",
        summary="{{ $value }} bundles have been served side by side for an hour.",
    )


def drift() -> Alert:
    """A point has broken its promise on live texts. It stays so until another bundle is served."""
    alarm = f"max by (instance, point) ({names.DRIFT_ALARM})"
    return Alert(
        name="PatamarDrift",
        # A service that watches no point has no series, and no drift that it would know of.
        conditions=(Condition(signal=f"({or_zero(alarm)})", comparison=">", threshold=0),),
        hold="0m",
        severity="warning",
        summary="Operating point {{ $labels.point }} of {{ $labels.instance }} broke its promise; "
        "its requests get full depth.",
    )
