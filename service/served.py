"""What the routes of one application work with. Made once; nothing of it is module state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from prometheus_client import CollectorRegistry

from multi_exit.bundle import Bundle
from multi_exit.errors import ConfigurationError
from multi_exit.text_encoder import TextEncoder
from service.answers import AnswerShape
from service.metrics import Metrics
from service.policies import Policies, PolicyBounds
from service.readiness import Readiness
from service.settings import Settings
from service.shadow_watch import ShadowWatch
from service.sliding import Sliding
from service.tokenisation import Tokenisation

_LIMITS = (
    "max_body_bytes",
    "max_texts",
    "max_top_k",
    "max_waiting_tokens",
    "max_wait_seconds",
    "max_tokenising_characters",
    "max_batch_rows",
    "max_batch_tokens",
    "request_timeout_seconds",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One bundle under one operator's settings."""

    settings: Settings
    bundle: Bundle
    encoder: TextEncoder
    policies: Policies
    sliding: Sliding
    shape: AnswerShape
    metrics: Metrics
    tokenisation: Tokenisation
    readiness: Readiness
    watch: ShadowWatch

    @classmethod
    def make(cls, settings: Settings, bundle: Bundle) -> Self:
        """Raises ConfigurationError where settings and bundle do not fit each other."""
        manifest = bundle.manifest
        if settings.max_waiting_tokens < manifest.length_buckets[-1]:
            raise ConfigurationError(
                f"max_waiting_tokens {settings.max_waiting_tokens} would refuse every text of "
                f"{manifest.length_buckets[-1]} tokens, the longest of this bundle; raise it"
            )
        metrics = Metrics(CollectorRegistry(), layers=manifest.layers, stages=len(manifest.stages))
        watch = ShadowWatch.make(settings, bundle, metrics, rng=np.random.default_rng())
        policies = Policies(
            manifest,
            PolicyBounds(
                default_threshold=settings.default_threshold,
                default_point=settings.default_point,
                fastest_point=settings.fastest_point,
                slide_to_point=settings.slide_to_point,
            ),
            is_suspended=watch.guard.is_suspended,
        )
        encoder = bundle.text_encoder()
        readiness = Readiness(watch.sample)
        metrics.watch_ready(lambda: readiness.ready)
        return cls(
            settings=settings,
            bundle=bundle,
            encoder=encoder,
            policies=policies,
            sliding=Sliding(policies.steps, at_wait_seconds=settings.slide_at_wait_seconds),
            shape=AnswerShape(
                labels=manifest.labels,
                exits=manifest.exits,
                layers=manifest.layers,
                bundle=bundle.identifier,
            ),
            metrics=metrics,
            tokenisation=Tokenisation(
                encoder, max_characters=settings.max_tokenising_characters, metrics=metrics
            ),
            readiness=readiness,
            watch=watch,
        )

    def model_document(self) -> dict[str, Any]:
        """The body of GET /model. Raises NotReady before the provider is known."""
        self.readiness.require_engine()
        manifest, runner = self.bundle.manifest, self.readiness.runner
        return {
            "bundle": self.bundle.identifier,
            "name": manifest.name,
            "labels": manifest.labels,
            "layers": manifest.layers,
            "exits": manifest.exits,
            "operating_points": [
                point.model_dump(mode="json") for point in manifest.operating_points
            ],
            "default_policy": self.policies.default.document,
            "fastest_point": self.settings.fastest_point,
            "slide_to_point": self.settings.slide_to_point,
            "takes_pairs": manifest.takes_pairs,
            "max_length": manifest.max_length,
            "length_buckets": manifest.length_buckets,
            "precision": manifest.precision,
            "provider": None if runner is None else runner.provider,
            "limits": {name: getattr(self.settings, name) for name in _LIMITS},
        }
