"""PromQL over the service's own metrics: the only file here that puts a query together.

Metric names come from `service.metric_names`, so a rename reaches every panel and alert, or fails
the tests. Ratios are always of sums over instances, never means of means.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which series a query reads, and over which window it takes a rate.

    matchers: label matchers without braces, "" for all series.
    window: a PromQL duration, or a dashboard variable that stands for one.
    """

    matchers: str
    window: str

    def series(self, metric: str, matcher: str = "") -> str:
        """The selector of a metric's series; `matcher` narrows it further."""
        matchers = ", ".join(part for part in (self.matchers, matcher) if part)
        return f"{metric}{{{matchers}}}" if matchers else metric

    def rate(self, counter: str, *, by: str = "", matcher: str = "") -> str:
        """Increase a second of a counter, summed over instances, kept apart by label `by`."""
        return f"sum{_by(by)}(rate({self.series(counter, matcher)}[{self.window}]))"

    def increase(self, counter: str, *, by: str = "", matcher: str = "") -> str:
        """Increase of a counter within the window, summed over instances."""
        return f"sum{_by(by)}(increase({self.series(counter, matcher)}[{self.window}]))"

    def mean(self, histogram: str, *, by: str = "") -> str:
        """Mean observation: sums over counts, so that instances weigh by what they did."""
        return ratio(self.rate(f"{histogram}_sum", by=by), self.rate(f"{histogram}_count", by=by))

    def quantile(self, share: float, histogram: str) -> str:
        """Quantile over all instances, interpolated within its bucket."""
        return f"histogram_quantile({share}, {self.rate(f'{histogram}_bucket', by='le')})"

    def share(self, part: str, *wholes: str) -> str:
        """Part of the sum of `wholes`; all are counters. No number while nothing happened."""
        whole = " + ".join(self.rate(counter) for counter in wholes)
        return ratio(self.rate(part), f"({whole})" if len(wholes) > 1 else whole)

    def share_matching(self, counter: str, matcher: str, *, within: str = "") -> str:
        """Share of a counter's increase (of its series that match `within`) that has `matcher`.

        `or vector(0)`: a label value that never occurred has no series, and a missing series
        would hide the share where it should read 0.
        """
        both = ", ".join(part for part in (within, matcher) if part)
        part = f"({self.rate(counter, matcher=both)} or vector(0))"
        return ratio(part, self.rate(counter, matcher=within))


def ratio(numerator: str, denominator: str) -> str:
    """One query over another."""
    return f"{numerator} / {denominator}"


def or_zero(query: str) -> str:
    """0, without labels, where the query has no series: what it is about does not happen here."""
    return f"{query} or on() vector(0)"


def _by(label: str) -> str:
    return f" by ({label}) " if label else ""
