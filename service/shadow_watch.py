"""Puts the watching of shadow rows together: who is drawn, and who hears what their exits said.

Drawn rows go through the engine (service/engine.py), then to the drift guard and the shadow log.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from multi_exit.bundle import Bundle
from service.drift_guard import DriftGuard, watched_points
from service.drift_state import DriftStateFile
from service.metrics import Metrics
from service.settings import Settings
from service.shadow_log import ShadowLog
from service.shadow_sample import ShadowRow, ShadowSample


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowWatch:
    """One bundle's shadow rows under one operator's settings."""

    sample: ShadowSample
    guard: DriftGuard

    @classmethod
    def make(
        cls, settings: Settings, bundle: Bundle, metrics: Metrics, *, rng: np.random.Generator
    ) -> Self:
        """rng: draws the rows. Raises ConfigurationError where a file cannot be used."""
        path, share = settings.drift_state_file, settings.shadow_share
        # Without a share nothing is learnt, but an alarm that was saved still holds.
        watches = share > 0 or path is not None
        guard = DriftGuard(
            watched_points(bundle.manifest) if watches else (),
            alpha=settings.drift_alpha,
            state=None if path is None else DriftStateFile(path, bundle=bundle.identifier),
            clock=time.monotonic,
        )
        metrics.watch_drift(lambda: guard.tests)
        log = None
        if settings.shadow_log is not None:
            log = ShadowLog(
                settings.shadow_log,
                bundle=bundle.identifier,
                share=share,
                max_bytes=settings.shadow_log_max_bytes,
            )

        def measured(row: ShadowRow) -> None:
            guard.observe(row)
            if log is not None:
                log.write(row)

        sample = ShadowSample(
            share=share,
            max_rows=settings.max_shadow_rows,
            rng=rng,
            measured=measured,
            counted=metrics.shadow_row,
        )
        return cls(sample=sample, guard=guard)

    def document(self) -> dict[str, Any]:
        """The member `drift` of /readyz."""
        return {"suspended": list(self.guard.suspended)}

    def close(self) -> None:
        """Saves what is known. After the engine has ended."""
        self.guard.close()
