"""Operating points and their certificates, on outputs whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from export.calibrate import calibrate, default_point, threshold_path
from export.config import ExportConfig
from multi_exit.bundle import OperatingPoint
from multi_exit.outcome import ExitOutputs

EXITS = (2, 4, 6)


def _outputs(samples: int, seed: int, error_share: float = 0.2) -> ExitOutputs:
    """Three exits; shallow ones disagree with the last more often where entropy is high."""
    rng = np.random.default_rng(seed)
    entropy = np.sort(rng.uniform(size=(samples, 3)), axis=1)[:, ::-1].astype(np.float32)
    truth = rng.integers(0, 5, samples)
    logits = np.zeros((samples, 3, 5), dtype=np.float32)
    for exit_index in range(3):
        wrong = rng.uniform(size=samples) < entropy[:, exit_index] * error_share
        label = np.where(wrong & (exit_index < 2), (truth + 1) % 5, truth)
        logits[np.arange(samples), exit_index, label] = 5.0
    return ExitOutputs(logits, entropy)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(50, 3000))
def test_every_certificate_can_be_checked_by_anyone(seed: int, samples: int) -> None:
    outputs = _outputs(samples, seed)
    config = ExportConfig()
    for point in calibrate(outputs, None, EXITS, config):
        answered = _answers(outputs, point)
        errors = int((answered != outputs.labels[:, -1]).sum())
        for certificate in point.certificates:
            assert certificate.errors == errors
            assert certificate.samples == samples
            # The exact binomial, by an independent library.
            assert stats.binom.cdf(errors, samples, certificate.epsilon) <= certificate.delta


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_a_point_is_certified_only_where_every_safer_threshold_was(seed: int) -> None:
    outputs = _outputs(800, seed)
    config = ExportConfig()
    certified = {
        point.thresholds[0]: {c.epsilon for c in point.certificates}
        for point in calibrate(outputs, None, EXITS, config)
    }
    for epsilon in config.epsilons:
        allowed = 0.0
        for threshold in threshold_path(config):
            point = OperatingPoint(
                name="x",
                thresholds=(threshold,) * 3,
                average_layers=1,
                speedup=1,
                samples=1,
                agreement=1,
                accuracy=None,
                full_depth_accuracy=None,
            )
            errors = int((_answers(outputs, point) != outputs.labels[:, -1]).sum())
            if stats.binom.cdf(errors, 800, epsilon) > config.delta:
                break
            allowed = threshold
        found = [t for t, epsilons in certified.items() if epsilon in epsilons]
        assert max(found, default=0.0) == allowed


def test_violations_stay_within_delta_over_many_redraws() -> None:
    # A population with a known share of disagreement at every threshold; many calibrations.
    population = _outputs(60_000, seed=1, error_share=0.12)
    config = ExportConfig(epsilons=(0.02,), shown_thresholds=(0.5,))
    rng = np.random.default_rng(2)
    violations = 0
    redraws = 200
    for _ in range(redraws):
        rows = rng.integers(0, 60_000, 1000)
        sample = ExitOutputs(population.logits[rows], population.entropy[rows])
        points = calibrate(sample, None, EXITS, config)
        point = next((p for p in points if p.name == "disagreement-2%"), None)
        if point is None:
            continue
        truth = (_answers(population, point) != population.labels[:, -1]).mean()
        violations += truth > 0.02
    # 5 % allowed; the bound leaves room for chance in so many redraws (p < 0.001).
    assert violations <= stats.binom.ppf(0.999, redraws, config.delta)


@pytest.mark.parametrize("samples", [10, 298])
def test_too_few_texts_certify_nothing_at_one_percent(samples: int) -> None:
    outputs = _outputs(samples, seed=3, error_share=0.0)
    config = ExportConfig(epsilons=(0.01,))
    points = calibrate(outputs, None, EXITS, config)
    assert not any(point.certificates for point in points)
    assert default_point(points, config) == "full-depth"


def test_299_texts_without_an_error_certify_one_percent() -> None:
    outputs = _outputs(299, seed=3, error_share=0.0)
    config = ExportConfig(epsilons=(0.01,))
    points = calibrate(outputs, None, EXITS, config)
    assert default_point(points, config) == "disagreement-1%"


def test_accuracy_is_absent_without_labels_and_right_with_them() -> None:
    outputs = _outputs(500, seed=4)
    labels = outputs.labels[:, -1]
    unlabelled = calibrate(outputs, None, EXITS, ExportConfig())
    labelled = calibrate(outputs, labels, EXITS, ExportConfig())
    assert all(point.accuracy is None for point in unlabelled)
    # With full depth always right, accuracy is agreement.
    assert all(point.accuracy == pytest.approx(point.agreement) for point in labelled)


def _answers(outputs: ExitOutputs, point: OperatingPoint) -> np.ndarray:
    exits = [point.policy.exit_index(tuple(row.tolist())) for row in outputs.entropy]
    return outputs.labels[np.arange(len(exits)), exits]
