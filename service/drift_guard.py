"""Which operating points have lost their promise: one drift test a certified point.

A shadow row knows every exit's entropy and label, so it says for every point, whichever answered
it, whether that point would have given another label than full depth; all tests see all rows. A
test that alarms suspends its point (service/policies.py then gives full depth), until another
bundle is served: a promise that has failed is not mended by calmer rows, only by a new calibration.

Each test gives a false alarm with probability alpha in all time, so several points give one with
at most the sum. Watched are points with a certificate about all texts on disagreement with full
depth: "consistency", else "expected_disagreement". The latter holds on average over calibrations,
so that one calibration may break it without any drift. A promise on accuracy alone cannot be
watched, since live texts have no true labels.

Owner: the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from multi_exit.bundle import BundleManifest, OperatingPoint
from multi_exit.certificate import CertificateKind
from multi_exit.drift import DriftTest
from multi_exit.errors import ConfigurationError
from multi_exit.policy import Policy
from service.drift_state import DriftStateFile
from service.shadow_sample import ShadowRow

logger = logging.getLogger(__name__)

_SAVE_SECONDS = 60.0
_PROMISES: tuple[CertificateKind, ...] = ("consistency", "expected_disagreement")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPoint:
    """A certified operating point. epsilon: the least share of other labels that it promises."""

    name: str
    policy: Policy
    epsilon: float


class DriftGuard:
    """The drift tests of one bundle's points.

    alpha: chance of a false alarm in all time, a point. state: where tests outlive the process.
    clock: seconds. Raises ConfigurationError where the state is damaged, of another promise, or
    cannot be saved.
    """

    def __init__(
        self,
        points: Iterable[WatchedPoint],
        *,
        alpha: float,
        state: DriftStateFile | None,
        clock: Callable[[], float],
    ) -> None:
        self._points = {point.name: point for point in points}
        self._state = state
        self._clock = clock
        saved = {} if state is None else state.load()
        self._tests = {
            name: _continued(saved.get(name), point, alpha) for name, point in self._points.items()
        }
        if state is not None:
            state.check_writable(self._tests)
        self._saved_at = clock()
        if self.suspended:
            logger.warning("suspended by an alarm before this start: %s", ", ".join(self.suspended))

    @property
    def tests(self) -> Mapping[str, DriftTest]:
        """By the name of the watched point."""
        return self._tests

    @property
    def suspended(self) -> tuple[str, ...]:
        """Names of the points whose promise has failed."""
        return tuple(name for name, test in self._tests.items() if test.alarm)

    def is_suspended(self, point_name: str) -> bool:
        """Whether requests that would use this point must get full depth."""
        test = self._tests.get(point_name)
        return test is not None and test.alarm

    def observe(self, row: ShadowRow) -> None:
        """Takes one more row, in the order of admission, into all tests."""
        alarmed = False
        for name, point in self._points.items():
            before = self._tests[name]
            answered = row.labels[point.policy.exit_index(row.entropies)]
            self._tests[name] = after = before.updated(answered != row.labels[-1])
            if after.alarm and not before.alarm:
                alarmed = True
                _warn(point, after)
        if alarmed or self._clock() - self._saved_at >= _SAVE_SECONDS:
            self._save()

    def close(self) -> None:
        """Saves the tests and waits until they are."""
        if self._state is not None:
            self._save()
            self._state.close()

    def _save(self) -> None:
        self._saved_at = self._clock()
        if self._state is not None:
            self._state.save(self._tests)


def watched_points(manifest: BundleManifest) -> tuple[WatchedPoint, ...]:
    """The points of a bundle whose promise live texts can break."""
    found = []
    for point in manifest.operating_points:
        epsilon = _promised(point)
        # Full depth agrees with itself: there is nothing to watch.
        if epsilon is not None and any(point.thresholds[:-1]):
            found.append(WatchedPoint(name=point.name, policy=point.policy, epsilon=epsilon))
    return tuple(found)


def _promised(point: OperatingPoint) -> float | None:
    for kind in _PROMISES:
        epsilons = [
            certificate.epsilon
            for certificate in point.certificates
            if certificate.kind == kind and certificate.label is None
        ]
        if epsilons:
            return min(epsilons)
    return None


def _continued(saved: DriftTest | None, point: WatchedPoint, alpha: float) -> DriftTest:
    """The saved test, at the alpha of now: its wealth does not depend on alpha."""
    if saved is None:
        return DriftTest(epsilon=point.epsilon, alpha=alpha)
    if saved.epsilon != point.epsilon:
        raise ConfigurationError(
            f"the drift state of point {point.name!r} watches {saved.epsilon:g}, but the bundle "
            f"promises {point.epsilon:g}; remove the file named by drift_state_file"
        )
    return replace(saved, alpha=alpha)


def _warn(point: WatchedPoint, test: DriftTest) -> None:
    logger.warning(
        "drift: operating point %s is suspended, its requests get full depth. %d of %d shadow rows "
        "got another label than at full depth; it promised at most %g (e-value %.3g, alarm at "
        "%.3g). Calibrate anew on recent texts and serve that bundle",
        point.name,
        test.disagreements,
        test.rows,
        point.epsilon,
        test.e_value,
        1 / test.alpha,
    )
