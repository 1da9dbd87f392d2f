"""All metrics, and what is counted when. Names: service/metric_names.py.

Owner: the event loop. Every metric belongs to the registry passed in, so that two services fit in
one process. Labels are bounded: stages, routes, statuses and reasons that we name ourselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from multi_exit.drift import DriftTest
from service import metric_names as names
from service.shadow_sample import ShadowOutcome

# Times from 0.25 ms, each bucket twice the one before, up to 32 s.
SECONDS_BUCKETS = tuple(0.00025 * 2**power for power in range(18))
ROWS_BUCKETS = tuple(float(2**power) for power in range(11))

FinishedAs = Literal["answered", "failed", "cancelled", "rejected"]
_OUTCOMES: tuple[FinishedAs, ...] = ("answered", "failed", "cancelled", "rejected")
_SHADOW_OUTCOMES: tuple[ShadowOutcome, ...] = ("measured", "dropped", "failed")


class Metrics:
    """What the service counts. layers: those of the model; stages: graphs of the bundle."""

    def __init__(self, registry: CollectorRegistry, *, layers: int, stages: int) -> None:
        self.registry = registry
        self._layers = layers
        counter, seconds = _maker(registry), _seconds_maker(registry)
        point_gauge = _point_gauge_maker(registry)
        self._received = counter(names.REQUESTS_RECEIVED, "Requests to classify that arrived.")
        finished = Counter(
            names.REQUESTS_FINISHED,
            "Requests to classify by how they ended; together with those under way, all received.",
            ["outcome"],
            registry=registry,
        )
        self._finished = {outcome: finished.labels(outcome) for outcome in _OUTCOMES}
        self._responses = Counter(
            names.HTTP_RESPONSES, "Responses sent.", ["status", "route"], registry=registry
        )
        self._rejected = Counter(
            names.REJECTED, "Requests refused before any work.", ["reason"], registry=registry
        )
        self._exit_layer = Histogram(
            names.ANSWER_EXIT_LAYER,
            "Layer after which texts left, one bucket a layer.",
            buckets=[float(layer) for layer in range(1, layers + 1)],
            registry=registry,
        )
        self._request_seconds = seconds(
            names.REQUEST_SECONDS, "From a request's headers to the end of its response."
        )
        self._queue_seconds = seconds(
            names.QUEUE_SECONDS, "Time a text waited, before its first stage and between stages."
        )
        self._tokenise_seconds = seconds(
            names.TOKENISE_SECONDS, "Time a request's texts took to become tokens."
        )
        stage_seconds = Histogram(
            names.STAGE_SECONDS,
            "Time a micro-batch ran a stage.",
            ["stage"],
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self._stage_seconds = [stage_seconds.labels(str(stage + 1)) for stage in range(stages)]
        self._stage_rows = Histogram(
            names.STAGE_ROWS, "Texts in a micro-batch.", buckets=ROWS_BUCKETS, registry=registry
        )
        self._rows_in_flight = Gauge(
            names.ROWS_IN_FLIGHT,
            "Texts that wait for a stage or run it.",
            ["stage"],
            registry=registry,
        )
        self._waiting_tokens = Gauge(
            names.WAITING_TOKENS,
            "Padded tokens of texts accepted and not answered yet.",
            registry=registry,
        )
        self._layers_run = counter(names.LAYERS_RUN, "Layers run for texts that were answered.")
        self._layers_saved = counter(names.LAYERS_SAVED, "Layers those texts did not need.")
        self._truncated = counter(names.TRUNCATED, "Texts cut to the model's length.")
        self._non_finite = counter(
            names.NON_FINITE_ROWS, "Texts for which a stage gave NaN or infinity."
        )
        self._cut_short = counter(
            names.CUT_SHORT, "Texts that left at an exit because of their deadline."
        )
        self._given_up = counter(
            names.GIVEN_UP_ROWS, "Texts whose client hung up or whose request took too long."
        )
        self._slid = counter(
            names.SLID_REQUESTS, "Requests that got a faster certified point because of the load."
        )
        shadow = Counter(
            names.SHADOW_ROWS,
            "Texts drawn for the shadow, by what became of them.",
            ["outcome"],
            registry=registry,
        )
        self._shadow = {outcome: shadow.labels(outcome) for outcome in _SHADOW_OUTCOMES}
        self._shadow_layers = counter(
            names.SHADOW_LAYERS_RUN, "Layers run for texts of the shadow after their answer."
        )
        self._drift_e_value = point_gauge(
            names.DRIFT_E_VALUE, "Evidence that a point no longer keeps its promise; 1 for none."
        )
        self._drift_disagreement = point_gauge(
            names.DRIFT_DISAGREEMENT_RATIO,
            "Share of shadow texts that a point labels otherwise than full depth; 0 before any.",
        )
        self._drift_alarm = point_gauge(
            names.DRIFT_ALARM, "1 where a point is suspended and its requests get full depth."
        )
        self._info = Gauge(
            names.BUNDLE_INFO,
            "The bundle being served; always 1.",
            ["bundle", "provider", "precision"],
            registry=registry,
        )
        self._ready = Gauge(names.READY, "1 where /readyz says yes.", registry=registry)
        Gauge(names.MODEL_LAYERS, "Layers of the model.", registry=registry).set(layers)

    def request_received(self) -> None:
        self._received.inc()

    def request_finished(self, outcome: FinishedAs, reason: str | None) -> None:
        """reason: the problem's name, for a request that was rejected."""
        self._finished[outcome].inc()
        if outcome == "rejected" and reason is not None:
            self._rejected.labels(reason).inc()

    def responded(self, *, status: int, route: str) -> None:
        self._responses.labels(str(status), route).inc()

    def request_took(self, seconds: float) -> None:
        self._request_seconds.observe(seconds)

    def tokenised(self, seconds: float, truncated: int) -> None:
        self._tokenise_seconds.observe(seconds)
        if truncated:
            self._truncated.inc(truncated)

    def stage_ran(self, *, stage: int, rows: int, seconds: float) -> None:
        self._stage_seconds[stage - 1].observe(seconds)
        self._stage_rows.observe(rows)

    def answered(self, *, exit_layer: int, wait_seconds: float, cut_short: bool = False) -> None:
        if cut_short:
            self._cut_short.inc()
        self._exit_layer.observe(exit_layer)
        self._layers_run.inc(exit_layer)
        self._layers_saved.inc(self._layers - exit_layer)
        self._queue_seconds.observe(wait_seconds)

    def non_finite(self, rows: int) -> None:
        self._non_finite.inc(rows)

    def given_up(self, rows: int) -> None:
        self._given_up.inc(rows)

    def slid(self) -> None:
        self._slid.inc()

    def shadow_row(self, outcome: ShadowOutcome) -> None:
        self._shadow[outcome].inc()

    def shadow_ran(self, *, layers: int) -> None:
        self._shadow_layers.inc(layers)

    def serves(self, *, bundle: str, provider: str, precision: str) -> None:
        self._info.labels(bundle, provider, precision).set(1)

    def watch(self, *, rows_at: Callable[[int], int], waiting_tokens: Callable[[], int]) -> None:
        """Reads these levels at every scrape, instead of at every change."""
        for stage in range(1, len(self._stage_seconds) + 1):
            self._rows_in_flight.labels(str(stage)).set_function(partial(_level, rows_at, stage))
        self._waiting_tokens.set_function(lambda: float(waiting_tokens()))

    def watch_drift(self, tests: Callable[[], Mapping[str, DriftTest]]) -> None:
        """Reads the drift tests, by operating point, at every scrape. Their names are fixed."""
        read: dict[Gauge, Callable[[DriftTest], float]] = {
            self._drift_e_value: lambda test: test.e_value,
            self._drift_disagreement: lambda test: test.disagreements / max(1, test.rows),
            self._drift_alarm: lambda test: float(test.alarm),
        }
        for point in tests():
            for gauge, value in read.items():
                gauge.labels(point).set_function(partial(_of_point, tests, point, value))

    def watch_ready(self, is_ready: Callable[[], bool]) -> None:
        self._ready.set_function(lambda: float(is_ready()))


def _maker(registry: CollectorRegistry) -> Callable[[str, str], Counter]:
    return lambda name, help_text: Counter(name, help_text, registry=registry)


def _seconds_maker(registry: CollectorRegistry) -> Callable[[str, str], Histogram]:
    return lambda name, help_text: Histogram(
        name, help_text, buckets=SECONDS_BUCKETS, registry=registry
    )


def _point_gauge_maker(registry: CollectorRegistry) -> Callable[[str, str], Gauge]:
    return lambda name, help_text: Gauge(name, help_text, ["point"], registry=registry)


def _of_point(
    tests: Callable[[], Mapping[str, DriftTest]], point: str, value: Callable[[DriftTest], float]
) -> float:
    return value(tests()[point])


def _level(rows_at: Callable[[int], int], stage: int) -> float:
    return float(rows_at(stage))
