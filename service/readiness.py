"""From a bundle on disk to an engine that may be asked: runner, warm-up, golden examples.

Owner: the event loop. Ready means: digests checked, every stage run at every bucket, golden
examples answered as they were sealed, worker alive.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from prometheus_client import CollectorRegistry

from multi_exit.bundle import Bundle, BundleManifest
from multi_exit.errors import BundleError
from multi_exit.offline import check_golden_answer
from multi_exit.policy import Policy
from multi_exit.runner import StageRunner
from multi_exit.text_encoder import EncodedText, TextEncoder
from service.admission import seconds_a_token
from service.answers import RowAnswer, RowOutcome
from service.cpu_quota import available_threads
from service.engine import Engine
from service.errors import NotReady, Overloaded
from service.metrics import Metrics
from service.scheduler import SchedulerLimits
from service.settings import Settings
from service.shadow_sample import ShadowSample
from service.worker import Worker

logger = logging.getLogger(__name__)


class Readiness:
    """Whether requests can be taken, and the engine that takes them.

    shadow: draws rows of that engine to be watched to full depth. detail: what is being waited for
    while there is no engine.
    """

    def __init__(self, shadow: ShadowSample | None = None) -> None:
        self._shadow = shadow
        self.engine: Engine | None = None
        self.runner: StageRunner | None = None
        self.detail = "starting: loading the bundle"
        self.draining = False

    @property
    def ready(self) -> bool:
        return self.refusal is None

    @property
    def refusal(self) -> str | None:
        """Why /readyz says no; None where it says yes."""
        if self.draining:
            return "the service is shutting down"
        return self.detail if self.engine is None else self.engine.refusal

    @property
    def overload(self) -> Overloaded | None:
        """Why not even one short text can be taken now; None where it can, or nothing is ready."""
        return None if self.engine is None else self.engine.admission.overload

    def require_engine(self) -> Engine:
        """Raises NotReady where no request can be taken."""
        # Draining takes requests still: a connection may have sent one before it heard.
        if self.engine is None:
            raise NotReady(self.detail)
        return self.engine

    def drain(self) -> None:
        """Says no from now on; what comes all the same is answered, but no longer watched."""
        self.draining = True
        if self.engine is not None:
            self.engine.stop_shadow()

    async def start(
        self, bundle: Bundle, encoder: TextEncoder, settings: Settings, metrics: Metrics
    ) -> None:
        """Makes the engine. Raises ProviderUnavailable or BundleError where it cannot be."""
        started = time.monotonic()
        threads = settings.threads or available_threads()
        runner = await asyncio.to_thread(
            StageRunner, bundle, provider=settings.provider, threads=threads
        )
        self.runner = runner
        limits = scheduler_limits(settings)
        self.detail = "starting: warming every stage and length"
        # Warmed and checked by an engine of its own, so that no metric shows it.
        scratch = Metrics(
            CollectorRegistry(), layers=bundle.manifest.layers, stages=len(bundle.manifest.stages)
        )
        rehearsal = _engine(bundle, runner, limits, dict.fromkeys(_buckets(bundle), 0.001), scratch)
        try:
            seconds = await warm_up(rehearsal, bundle.manifest)
            self.detail = "starting: checking the golden examples"
            await check_golden_examples(rehearsal, bundle, encoder)
        finally:
            await rehearsal.close()
        ahead = int(settings.max_wait_seconds / seconds_a_token(seconds))
        limits = replace(limits, max_ahead_tokens=ahead)
        self.engine = _engine(bundle, runner, limits, seconds, metrics, shadow=self._shadow)
        metrics.serves(
            bundle=bundle.identifier,
            provider=runner.provider,
            precision=bundle.manifest.precision,
        )
        logger.info(
            "ready after %.1f s: bundle %s (%s, %s), provider %s, %d threads",
            time.monotonic() - started,
            bundle.identifier,
            bundle.manifest.name,
            bundle.manifest.precision,
            runner.provider,
            threads,
        )

    async def stop(self) -> None:
        self.drain()
        if self.engine is not None:
            await self.engine.close()
        if self.runner is not None:
            self.runner.close()


def scheduler_limits(settings: Settings) -> SchedulerLimits:
    return SchedulerLimits(
        max_batch_rows=settings.max_batch_rows,
        max_batch_tokens=settings.max_batch_tokens,
        max_waiting_tokens=settings.max_waiting_tokens,
    )


async def warm_up(engine: Engine, manifest: BundleManifest) -> dict[int, float]:
    """Runs one text of every bucket through all stages, twice.

    Returns the seconds of the second time, by bucket: the first pays for memory and kernels.
    """
    seconds: dict[int, float] = {}
    for bucket in manifest.length_buckets:
        for _ in range(2):
            (answer,) = await _full_depth(engine, manifest, [_text_of(bucket, manifest)])
            seconds[bucket] = answer.compute_seconds
    return seconds


async def check_golden_examples(engine: Engine, bundle: Bundle, encoder: TextEncoder) -> None:
    """Asks the engine for the golden examples, each as a request would.

    Raises BundleError where an exit answers otherwise than when the bundle was sealed.
    """
    manifest = bundle.manifest
    for example in manifest.golden:
        (answer,) = await _full_depth(engine, manifest, [encoder.encode(example.text_input)])
        logits = np.stack([exit_passed.logits for exit_passed in answer.passed])
        entropies = np.array([exit_passed.entropy for exit_passed in answer.passed])
        check_golden_answer(example, logits, entropies, bundle)


async def _full_depth(
    engine: Engine, manifest: BundleManifest, texts: Sequence[EncodedText]
) -> list[RowAnswer]:
    everything = Policy.constant(0.0, len(manifest.exits))
    outcomes = await engine.submit(texts, everything, explain=True).outcomes
    return [_answered(outcome) for outcome in outcomes]


def _answered(outcome: RowOutcome) -> RowAnswer:
    if not isinstance(outcome, RowAnswer):
        raise BundleError(f"the bundle fails on this machine: {outcome}") from outcome
    return outcome


def _engine(
    bundle: Bundle,
    runner: StageRunner,
    limits: SchedulerLimits,
    full_depth_seconds: Mapping[int, float],
    metrics: Metrics,
    *,
    shadow: ShadowSample | None = None,
) -> Engine:
    manifest = bundle.manifest
    return Engine(
        Worker(runner=runner, pad_token_id=manifest.pad_token_id),
        exits=manifest.exits,
        limits=limits,
        full_depth_seconds=full_depth_seconds,
        metrics=metrics,
        clock=time.monotonic,
        shadow=shadow,
    )


def _buckets(bundle: Bundle) -> tuple[int, ...]:
    return bundle.manifest.length_buckets


def _text_of(tokens: int, manifest: BundleManifest) -> EncodedText:
    return EncodedText(
        token_ids=np.full(tokens, manifest.pad_token_id, dtype=np.int64),
        type_ids=np.zeros(tokens, dtype=np.int64),
        truncated=False,
        truncated_pair=False,
    )
