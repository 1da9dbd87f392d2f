"""Certificates: what they say, when they are given, and how often they are wrong."""

from __future__ import annotations

import re
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy import stats

from bench.quality.certificates import REDRAWS, consistency_rows
from multi_exit.betting import accuracy_drop_p_value, accuracy_drop_upper_bound, best_bet
from multi_exit.binomial import binomial_upper_bound
from multi_exit.certificate import (
    Certificate,
    accuracy_drop_certificate,
    consistency_certificate,
    expected_disagreement_certificate,
)


def test_299_texts_without_an_error_promise_one_percent_and_298_do_not() -> None:
    passed = consistency_certificate(0, 299, epsilon=0.01, delta=0.05)
    assert passed is not None
    assert "At most 1% of" in passed.statement
    assert "95%" in passed.statement
    assert passed.upper_bound <= 0.01
    assert consistency_certificate(0, 298, epsilon=0.01, delta=0.05) is None


@given(st.floats(1e-6, 0.5), st.floats(1e-6, 0.5))
def test_the_statement_does_not_promise_more_than_was_shown(epsilon: float, delta: float) -> None:
    found = consistency_certificate(0, 100_000_000, epsilon=epsilon, delta=delta)
    assert found is not None
    stated, confidence = (float(part) for part in re.findall(r"([\d.e-]+)%", found.statement))
    assert stated / 100 == pytest.approx(epsilon, rel=1e-9)
    assert 1 - confidence / 100 == pytest.approx(delta, rel=1e-5)


@given(st.integers(1, 3000), st.data())
def test_a_certificate_is_given_where_the_bound_is_within_epsilon(
    samples: int, data: st.DataObject
) -> None:
    errors = data.draw(st.integers(0, samples))
    epsilon = data.draw(st.floats(0.001, 0.2))
    found = consistency_certificate(errors, samples, epsilon=epsilon, delta=0.05)
    bound = binomial_upper_bound(errors, samples, 0.05)
    if abs(bound - epsilon) > 1e-9:
        assert (found is not None) == (bound < epsilon)


@pytest.mark.parametrize("share", [0.0101, 0.012, 0.02])
def test_a_share_above_epsilon_is_certified_at_most_delta_of_the_time(share: float) -> None:
    rng = np.random.default_rng(0)
    redraws, samples = 2000, 1540
    counts = rng.binomial(samples, share, redraws)
    wrong = sum(
        consistency_certificate(int(count), samples, epsilon=0.01, delta=0.05) is not None
        for count in counts
    )
    assert wrong <= stats.binom.ppf(0.999, redraws, 0.05)


def test_certified_policies_of_a_path_exceed_epsilon_at_most_delta_of_the_time() -> None:
    rows = consistency_rows(np.random.default_rng(0), 1500)
    errors = [row for row in rows if row.limit is not None]
    assert len(errors) == 5
    assert all(row.happened <= stats.binom.ppf(0.999, REDRAWS, row.limit) for row in errors)
    power = {row.case: row.happened / row.of for row in rows if row.limit is None}
    assert power["1,500 texts, disagreement 0.25 epsilon"] > 0.95
    assert power["1,500 texts, nested path, the one at 0.5 epsilon"] > 0.6


def test_expected_disagreement_needs_one_text_less_than_one_over_epsilon() -> None:
    passed = expected_disagreement_certificate(0, 99, epsilon=0.01)
    assert passed is not None
    assert passed.upper_bound == 0.01
    assert passed.delta is None
    assert passed.p_value is None
    assert "On average over calibrations, at most 1% of" in passed.statement
    assert expected_disagreement_certificate(0, 98, epsilon=0.01) is None


def test_accuracy_drop_needs_few_texts_where_nothing_is_lost() -> None:
    give = partial(accuracy_drop_certificate, 0, 0, epsilon=0.01, delta=0.05)
    bet = best_bet(0, 0, 1000, 0.01)
    # 299 is the least that any test could do with.
    assert give(298, bet=bet) is None
    assert give(350, bet=bet) is not None
    assert give(410) is not None


@given(st.integers(1, 3000), st.data())
def test_accuracy_drop_is_certified_where_its_bound_is_within_epsilon(
    samples: int, data: st.DataObject
) -> None:
    losses = data.draw(st.integers(0, samples // 20))
    gains = data.draw(st.integers(0, samples // 20))
    epsilon = data.draw(st.floats(0.001, 0.2))
    bet = data.draw(st.none() | st.floats(0, 1))
    found = accuracy_drop_certificate(losses, gains, samples, epsilon=epsilon, delta=0.05, bet=bet)
    bound = accuracy_drop_upper_bound(losses, gains, samples, 0.05, bet=bet)
    if abs(bound - epsilon) > 1e-9:
        assert (found is not None) == (bound < epsilon)
    if found is not None:
        assert (found.errors, found.gains, found.upper_bound) == (losses, gains, bound)
        assert found.p_value == accuracy_drop_p_value(losses, gains, samples, epsilon, bet=bet)


@pytest.mark.parametrize(
    ("give", "words"),
    [
        (
            partial(consistency_certificate, 3, 2000, epsilon=0.01, delta=0.05),
            "At most 1% of texts like the 2,000 calibration texts{} get another label than at "
            "full depth, with 95% confidence (3 did).",
        ),
        (
            partial(accuracy_drop_certificate, 3, 4, 2000, epsilon=0.015, delta=0.1),
            "On texts like the 2,000 calibration texts{}, accuracy is lower than at full depth by "
            "less than 1.5 points, with 90% confidence (3 of them lost, 4 gained).",
        ),
        (
            partial(expected_disagreement_certificate, 3, 2000, epsilon=0.01),
            "On average over calibrations, at most 1% of texts like the 2,000 calibration texts{} "
            "get another label than at full depth (3 did).",
        ),
    ],
)
def test_a_certificate_says_what_was_counted_and_survives_json(give: Any, words: str) -> None:
    of_all, of_class = give(), give(label="card lost")
    chosen = " of class" if of_all.kind == "accuracy_drop" else " that full depth labels"
    assert of_all.statement == words.format("")
    assert of_class.statement == words.format(f"{chosen} 'card lost'")
    adapter = TypeAdapter(Certificate)
    for certificate in (of_all, of_class):
        assert adapter.validate_json(adapter.dump_json(certificate)) == certificate


def test_a_certificate_of_an_older_bundle_still_loads() -> None:
    found = consistency_certificate(0, 299, epsilon=0.01, delta=0.05)
    assert found is not None
    document = asdict(found)
    del document["gains"], document["label"]
    assert TypeAdapter(Certificate).validate_python(document) == found


def test_no_texts_and_nothing_but_errors_promise_nothing() -> None:
    for count in (0, 7):
        assert consistency_certificate(count, count, epsilon=0.01, delta=0.05) is None
        assert accuracy_drop_certificate(count, 0, count, epsilon=0.01, delta=0.05) is None
        assert expected_disagreement_certificate(count, count, epsilon=0.01) is None


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.1, float("nan")])
@pytest.mark.parametrize(
    "give",
    [
        partial(consistency_certificate, 0, 1000, delta=0.05),
        partial(accuracy_drop_certificate, 0, 0, 1000, delta=0.05),
        partial(expected_disagreement_certificate, 0, 1000),
    ],
)
def test_an_epsilon_that_makes_no_sense_is_refused(give: Any, epsilon: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        give(epsilon=epsilon)


@pytest.mark.parametrize(
    "give",
    [
        partial(consistency_certificate, 0, 1000, epsilon=0.01),
        partial(accuracy_drop_certificate, 0, 0, 1000, epsilon=0.01),
    ],
)
@pytest.mark.parametrize("delta", [0.0, 1.0, float("nan")])
def test_a_delta_that_makes_no_sense_is_refused(give: Any, delta: float) -> None:
    with pytest.raises(ValueError, match="delta must lie"):
        give(delta=delta)
