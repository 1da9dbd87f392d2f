"""Operating points and their certificates, on outputs whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from multi_exit.bundle import OperatingPoint
from multi_exit.calibration import (
    CalibrationConfig,
    LabelledOutputs,
    ModelShape,
    calibrate,
    default_point,
)
from multi_exit.errors import ConfigurationError
from multi_exit.outcome import ExitOutputs
from multi_exit.policy import Policy
from multi_exit.threshold_path import constant_path

EXITS = (2, 4, 6)
SHAPE = ModelShape(label_names=tuple("abcde"), exits=EXITS)


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


def _unlabelled(outputs: ExitOutputs) -> LabelledOutputs:
    return LabelledOutputs(outputs)


def _labelled(samples: int, seed: int, noise: float = 0.1) -> LabelledOutputs:
    """Labels that full depth mostly gives."""
    outputs = _outputs(samples, seed)
    rng = np.random.default_rng(seed + 1)
    wrong = rng.uniform(size=samples) < noise
    return LabelledOutputs(
        outputs, np.where(wrong, (outputs.labels[:, -1] + 1) % 5, outputs.labels[:, -1])
    )


def _answers(outputs: ExitOutputs, point: OperatingPoint) -> NDArray[np.int64]:
    exits = [point.policy.exit_index(tuple(row.tolist())) for row in outputs.entropy]
    return outputs.labels[np.arange(len(exits)), exits]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(120, 2000), st.booleans())
def test_every_consistency_certificate_can_be_checked_by_anyone(
    seed: int, samples: int, tuned: bool
) -> None:
    outputs = _outputs(samples, seed)
    tuning = _unlabelled(_outputs(400, seed + 1)) if tuned else None
    for point in calibrate(_unlabelled(outputs), SHAPE, CalibrationConfig(), tuning=tuning):
        errors = int((_answers(outputs, point) != outputs.labels[:, -1]).sum())
        for certificate in point.certificates:
            assert certificate.samples == samples
            if certificate.kind == "consistency":
                assert certificate.errors == errors
                assert certificate.delta is not None
                # The exact binomial, by an independent library.
                assert stats.binom.cdf(errors, samples, certificate.epsilon) <= certificate.delta
            else:
                assert certificate.kind == "expected_disagreement"
                # Texts that a slower policy got wrong count, too.
                assert certificate.errors >= errors


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_a_point_is_certified_only_where_every_safer_threshold_was(seed: int) -> None:
    outputs = _outputs(800, seed)
    config = CalibrationConfig(thresholds_by_exit=False)
    certified = {
        point.thresholds[0]: {c.epsilon for c in point.certificates if c.kind == "consistency"}
        for point in calibrate(_unlabelled(outputs), SHAPE, config)
    }
    for epsilon in config.epsilons:
        allowed = 0.0
        for policy in constant_path(len(EXITS), config.shown_thresholds):
            answered = outputs.labels[np.arange(800), outputs.exits_taken(policy)]
            errors = int((answered != outputs.labels[:, -1]).sum())
            if stats.binom.cdf(errors, 800, epsilon) > config.delta:
                break
            allowed = policy.thresholds[0]
        found = [t for t, epsilons in certified.items() if epsilon in epsilons]
        assert max(found, default=0.0) == allowed


@pytest.mark.parametrize("by_exit", [False, True])
def test_violations_stay_within_delta_over_many_redraws(by_exit: bool) -> None:
    # A population whose every text is known; many calibrations drawn from it.
    population = _labelled(20_000, seed=1)
    predicted, labels = population.outputs.labels, population.labels
    assert labels is not None
    full_depth = predicted[:, -1]
    tuning = _labelled(500, seed=99)
    config = CalibrationConfig(epsilons=(0.02,), shown_thresholds=(), thresholds_by_exit=by_exit)
    rng = np.random.default_rng(2)
    redraws = 120
    found = {"consistency": 0, "accuracy_drop": 0}
    violations = dict.fromkeys(found, 0)
    for _ in range(redraws):
        sample = population.rows(rng.integers(0, len(labels), 800))
        points = calibrate(sample, SHAPE, config, tuning=tuning)
        for kind in found:
            eligible = [p for p in points if any(c.kind == kind for c in p.certificates)]
            if not eligible:
                continue
            found[kind] += 1
            policy = max(eligible, key=lambda point: point.speedup).policy
            taken = population.outputs.exits_taken(policy)
            answers = predicted[np.arange(len(labels)), taken]
            if kind == "consistency":
                truth = float((answers != full_depth).mean())
            else:
                truth = float((full_depth == labels).mean() - (answers == labels).mean())
            violations[kind] += truth > 0.02
    assert min(found.values()) > redraws / 2
    # 5 % allowed; the bound leaves room for chance in so many redraws (p < 0.001).
    assert max(violations.values()) <= stats.binom.ppf(0.999, redraws, config.delta)


@pytest.mark.parametrize("samples", [10, 298])
def test_too_few_texts_certify_nothing_at_one_percent(samples: int) -> None:
    outputs = _outputs(samples, seed=3, error_share=0.0)
    config = CalibrationConfig(epsilons=(0.01,))
    points = calibrate(_unlabelled(outputs), SHAPE, config)
    assert not any(c.kind == "consistency" for point in points for c in point.certificates)
    assert default_point(points, config) == "full-depth"


def test_299_texts_without_an_error_certify_one_percent() -> None:
    outputs = _outputs(299, seed=3, error_share=0.0)
    config = CalibrationConfig(epsilons=(0.01,))
    points = calibrate(_unlabelled(outputs), SHAPE, config)
    assert default_point(points, config) == "disagreement-1%"


def test_one_point_that_is_fastest_for_several_promises_has_them_all() -> None:
    # Exits that never differ: every promise reaches the fastest policy.
    outputs = _outputs(2000, seed=3, error_share=0.0)
    labels = outputs.labels[:, -1]
    points = calibrate(LabelledOutputs(outputs, labels), SHAPE, CalibrationConfig())
    (certified,) = [point for point in points if point.certificates]
    assert certified.name == "disagreement-0.5%"
    for kind in ("consistency", "accuracy_drop", "expected_disagreement"):
        assert certified.promises(kind, 0.005)  # type: ignore[arg-type]


def test_accuracy_is_absent_without_labels_and_right_with_them() -> None:
    outputs = _outputs(500, seed=4)
    labels = outputs.labels[:, -1]
    unlabelled = calibrate(LabelledOutputs(outputs), SHAPE, CalibrationConfig())
    labelled = calibrate(LabelledOutputs(outputs, labels), SHAPE, CalibrationConfig())
    assert all(point.accuracy is None for point in unlabelled)
    # With full depth always right, accuracy is agreement.
    assert all(point.accuracy == pytest.approx(point.agreement) for point in labelled)


def test_accuracy_is_certified_only_with_labels() -> None:
    data = _labelled(1500, seed=5)
    with_labels = calibrate(data, SHAPE, CalibrationConfig())
    without = calibrate(LabelledOutputs(data.outputs), SHAPE, CalibrationConfig())
    kinds = {c.kind for point in with_labels for c in point.certificates}
    assert "accuracy_drop" in kinds
    assert "accuracy_drop" not in {c.kind for point in without for c in point.certificates}


def test_a_class_that_matters_slows_the_promise_down_until_it_holds_there_too() -> None:
    # Class 0 is rare and exits differ there much more often.
    rng = np.random.default_rng(6)
    samples = 4000
    truth = np.where(rng.uniform(size=samples) < 0.1, 0, rng.integers(1, 5, samples))
    entropy = np.sort(rng.uniform(size=(samples, 3)), axis=1)[:, ::-1].astype(np.float32)
    risk = np.where(truth == 0, 0.5, 0.01)[:, None] * entropy
    logits = np.zeros((samples, 3, 5), dtype=np.float32)
    for index in range(3):
        wrong = (rng.uniform(size=samples) < risk[:, index]) & (index < 2)
        logits[np.arange(samples), index, np.where(wrong, (truth + 1) % 5, truth)] = 5.0
    data = LabelledOutputs(ExitOutputs(logits, entropy))
    plain = CalibrationConfig(epsilons=(0.05,), default_epsilon=0.05)
    careful = plain.model_copy(update={"classes": ("a",)})
    fast = {p.name: p for p in calibrate(data, SHAPE, plain)}["disagreement-5%"]
    slow = {p.name: p for p in calibrate(data, SHAPE, careful)}["disagreement-5%"]
    assert slow.speedup < fast.speedup
    of_class = [c for c in slow.certificates if c.label == "a" and c.kind == "consistency"]
    assert of_class
    chosen = truth == 0
    answers = _answers(data.outputs, slow)
    assert of_class[0].samples == int((data.outputs.labels[:, -1] == 0).sum())
    assert of_class[0].errors == int((answers != data.outputs.labels[:, -1])[chosen].sum())


def test_a_class_that_is_no_label_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'z' is not a label"):
        calibrate(_unlabelled(_outputs(100, 1)), SHAPE, CalibrationConfig(classes=("z",)))


def test_a_class_without_texts_is_promised_nothing() -> None:
    outputs = _outputs(600, seed=7, error_share=0.0)
    keep = outputs.labels[:, -1] != 2
    data = _unlabelled(outputs).rows(keep)
    points = calibrate(data, SHAPE, CalibrationConfig(classes=("c",)))
    assert not any(point.certificates for point in points)


def test_the_time_of_stages_gives_the_speedup_in_time() -> None:
    data = _unlabelled(_outputs(500, seed=8))
    shape = ModelShape(label_names=SHAPE.label_names, exits=EXITS, stage_seconds=(3.0, 1.0, 1.0))
    for point in calibrate(data, shape, CalibrationConfig()):
        taken = data.outputs.exits_taken(Policy(point.thresholds))
        expected = 5.0 / np.array([3.0, 4.0, 5.0])[taken].mean()
        assert point.time_speedup == pytest.approx(expected)
