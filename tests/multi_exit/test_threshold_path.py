"""Paths from safe to fast: their order, and that a threshold for every exit pays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from multi_exit.agreement import fit_disagreement
from multi_exit.outcome import ExitOutputs, policy_outcome
from multi_exit.policy import Policy
from multi_exit.threshold_path import _best_threshold, constant_path, per_exit_path


def _outputs(samples: int, seed: int, exits: int = 4) -> ExitOutputs:
    """The first exit is far less to be trusted at the same entropy than later ones."""
    rng = np.random.default_rng(seed)
    hard = rng.uniform(size=(samples, 1))
    entropy = np.clip(hard * rng.uniform(0.2, 1.0, size=(samples, exits)), 1e-4, 1)
    trust = np.array([0.6, *[0.05] * (exits - 2), 0.0])
    truth = rng.integers(0, 3, samples)
    logits = np.zeros((samples, exits, 3), dtype=np.float32)
    for index in range(exits):
        wrong = rng.uniform(size=samples) < trust[index] * entropy[:, index]
        logits[np.arange(samples), index, np.where(wrong, (truth + 1) % 3, truth)] = 4.0
    return ExitOutputs(logits, entropy.astype(np.float32))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), exits=st.integers(2, 6), samples=st.integers(5, 400))
def test_thresholds_never_fall_along_a_path(seed: int, exits: int, samples: int) -> None:
    outputs = _outputs(samples, seed, exits)
    costs = np.cumsum(np.random.default_rng(seed).uniform(0.1, 2.0, exits))
    for path in (constant_path(exits), per_exit_path(outputs, tuple(costs.tolist()))):
        for slower, faster in itertools.pairwise(path):
            assert slower != faster
            assert all(a <= b for a, b in zip(slower.thresholds, faster.thresholds, strict=True))
        layers = [
            policy_outcome(outputs, p, tuple(range(1, exits + 1))).average_layers for p in path
        ]
        assert layers == sorted(layers, reverse=True)


def test_a_threshold_for_every_exit_is_faster_at_the_same_disagreement_on_other_texts() -> None:
    tuning, fresh = _outputs(1000, 1), _outputs(20_000, 2)
    layers = (1, 2, 3, 4)

    def fastest(path: tuple[Policy, ...], most: float) -> float:
        found = [policy_outcome(fresh, policy, layers) for policy in path]
        return min(o.average_layers for o in found if 1 - o.agreement <= most)

    for most in (0.01, 0.02, 0.05):
        by_exit = fastest(per_exit_path(tuning, layers), most)
        assert by_exit < 0.95 * fastest(constant_path(4), most)


def test_expensive_stages_are_avoided() -> None:
    outputs = _outputs(1000, 3)
    even = per_exit_path(outputs, (1, 2, 3, 4))
    late = per_exit_path(outputs, (1, 2, 3, 30))

    def share_at_last(path: tuple[Policy, ...]) -> list[float]:
        return [float((outputs.exits_taken(policy) == 3).mean()) for policy in path]

    # At the same overall price, fewer texts run the stage that costs most.
    assert np.mean(share_at_last(late)) < np.mean(share_at_last(even))


def test_one_exit_has_the_path_of_full_depth_alone() -> None:
    outputs = ExitOutputs(np.zeros((5, 1, 2), np.float32), np.zeros((5, 1), np.float32))
    assert per_exit_path(outputs, (6,)) == (Policy((0.0,)),)
    with pytest.raises(ValueError, match="one exit"):
        fit_disagreement(outputs)


def _slow_best(
    entropy: NDArray[np.float64], leave: NDArray[np.float64], stay: NDArray[np.float64]
) -> float:
    """Total loss of the best cut, by trying every one."""
    cuts = [0.0, *(np.unique(entropy) + 1e-9)]
    return min(float(np.where(entropy < cut, leave, stay).sum()) for cut in cuts)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), samples=st.integers(1, 30))
def test_the_best_threshold_is_the_best_of_all_cuts(seed: int, samples: int) -> None:
    rng = np.random.default_rng(seed)
    entropy = rng.choice(np.linspace(0.05, 0.9, 8), samples)  # with ties
    leave, stay = rng.uniform(size=samples), rng.uniform(size=samples)
    threshold = _best_threshold(entropy, leave, stay)
    found = float(np.where(entropy < threshold, leave, stay).sum())
    assert found == pytest.approx(_slow_best(entropy, leave, stay))


def test_the_disagreement_model_finds_what_made_the_data() -> None:
    rng = np.random.default_rng(0)
    samples = 20_000
    entropy = rng.uniform(0.01, 1.0, size=(samples, 3))
    chance = 1 / (1 + np.exp(-(np.array([-1.0, -2.0]) + 1.5 * np.log(entropy[:, :2]))))
    truth = np.zeros(samples, dtype=int)
    logits = np.zeros((samples, 3, 2), dtype=np.float32)
    for index in range(2):
        wrong = rng.uniform(size=samples) < chance[:, index]
        logits[np.arange(samples), index, np.where(wrong, 1 - truth, truth)] = 1.0
    logits[:, 2, 0] = 1.0
    model = fit_disagreement(ExitOutputs(logits, entropy.astype(np.float32)))
    assert model.intercepts == pytest.approx([-1.0, -2.0], abs=0.15)
    assert model.slopes == pytest.approx([1.5, 1.5], abs=0.15)
    risk = model.risk(entropy)
    assert np.all(risk[:, 2] == 0)
    assert risk[:, :2].mean(axis=0) == pytest.approx(chance.mean(axis=0), abs=0.01)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), samples=st.integers(1, 60), never=st.booleans())
def test_few_or_separable_texts_still_give_a_finite_model(
    seed: int, samples: int, never: bool
) -> None:
    outputs = _outputs(samples, seed)
    if never:
        outputs = ExitOutputs(np.ones_like(outputs.logits), outputs.entropy)
    model = fit_disagreement(outputs)
    assert np.isfinite(model.intercepts).all()
    assert np.isfinite(model.slopes).all()
    assert (model.slopes >= 0).all()
    assert ((model.risk(outputs.entropy) >= 0) & (model.risk(outputs.entropy) <= 1)).all()
