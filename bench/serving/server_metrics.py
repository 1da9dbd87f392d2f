"""What a server did between two looks at its /metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from bench.serving.server_process import ServerProcess
from service import metric_names as names

_Key = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """Every sample of one scrape, and when it was made (monotonic seconds)."""

    at: float
    samples: Mapping[_Key, float]

    def total(self, name: str, **labels: str) -> float:
        """Sum of all samples of a name that carry these labels; 0 without any."""
        wanted = frozenset(labels.items())
        return sum(
            value
            for (sample, found), value in self.samples.items()
            if sample == name and wanted <= found
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerWork:
    """Requests by how they ended, and what the engine did meanwhile.

    busy_share: seconds that stages ran / seconds that passed. average_exit_layer, rows_a_batch:
    None where nothing was answered.
    """

    seconds: float
    received: int
    answered: int
    failed: int
    cancelled: int
    rejected: int
    busy_share: float
    average_exit_layer: float | None
    rows_a_batch: float | None

    @property
    def lost(self) -> int:
        """Requests that arrived and ended in no way; those under way count too."""
        return self.received - self.answered - self.failed - self.cancelled - self.rejected


def scrape(server: ServerProcess) -> Scrape:
    """Reads /metrics."""
    return parse_scrape(server.get("/metrics"), time.monotonic())


def parse_scrape(text: str, at: float) -> Scrape:
    """The samples of a text in Prometheus' format."""
    samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return Scrape(at=at, samples=samples)


def work_between(before: Scrape, after: Scrape) -> ServerWork:
    """What happened between two scrapes of one server."""

    def more(name: str, **labels: str) -> float:
        return after.total(name, **labels) - before.total(name, **labels)

    def mean(name: str) -> float | None:
        count = more(f"{name}_count")
        return more(f"{name}_sum") / count if count else None

    def ended(outcome: str) -> int:
        return int(more(names.REQUESTS_FINISHED, outcome=outcome))

    seconds = after.at - before.at
    return ServerWork(
        seconds=seconds,
        received=int(more(names.REQUESTS_RECEIVED)),
        answered=ended("answered"),
        failed=ended("failed"),
        cancelled=ended("cancelled"),
        rejected=ended("rejected"),
        busy_share=more(f"{names.STAGE_SECONDS}_sum") / seconds,
        average_exit_layer=mean(names.ANSWER_EXIT_LAYER),
        rows_a_batch=mean(names.STAGE_ROWS),
    )
