"""Simulates the promises of the certificates and of the drift test against known truths.

`python -m bench.quality.certificates` prints the tables of docs/results/certificates.md, with
`--json` the same numbers as one document. Nothing but numpy runs; the seed is fixed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.quality.drift_watch import Delay, delays
from multi_exit.betting import accuracy_drop_p_value, best_bet
from multi_exit.binomial import binomial_tail, binomial_upper_bound
from multi_exit.certificate import consistency_certificate
from multi_exit.risk_control import controlled

EPSILON, DELTA = 0.01, 0.05
REDRAWS = 2000
# True disagreement of the policies of a path, from safe to fast, as multiples of epsilon.
PATH = np.array((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01, 1.05, 1.2, 1.5, 2.0, 3.0))
# True accuracy drop as a multiple of epsilon, and share of texts that only the policy gets right.
DROPS_AND_GAINS = (
    (0.1, 0.0), (0.25, 0.001), (0.25, 0.01), (0.5, 0.005), (0.5, 0.02),
    (1.0, 0.0), (1.0, 0.01), (1.0, 0.1), (1.5, 0.01),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """How often `test` passed in a case, with its 95 % Clopper-Pearson interval.

    limit: what the share may not exceed in truth; None where the share is power, not error.
    """

    case: str
    test: str
    happened: int
    of: int
    low: float
    high: float
    limit: float | None


def row(case: str, test: str, happened: int, of: int, limit: float | None) -> Row:
    low = 1.0 - binomial_upper_bound(of - happened, of, 0.025)
    return Row(case, test, happened, of, low, binomial_upper_bound(happened, of, 0.025), limit)


def consistency_rows(rng: np.random.Generator, samples: int) -> list[Row]:
    """Single policies of known disagreement, then paths of them under fixed-sequence testing."""
    passes = _passing_counts(samples)
    found = []
    for multiple in (0.25, 0.5, 0.75, 1.0, 1.1, 1.5):
        counts = rng.binomial(samples, multiple * EPSILON, REDRAWS)
        found.append(
            row(
                f"{samples:,} texts, disagreement {multiple:g} epsilon",
                "certified",
                int(passes[counts].sum()),
                REDRAWS,
                DELTA if multiple >= 1 else None,
            )
        )
    for name, counts in (
        ("nested", nested_counts(rng, samples)),
        ("independent", rng.binomial(samples, PATH * EPSILON, (REDRAWS, len(PATH)))),
    ):
        certified = np.logical_and.accumulate(passes[counts], axis=1)
        for what, policies, limit in (
            ("any above epsilon", PATH > 1, DELTA),
            ("the one at 0.5 epsilon", PATH == 0.5, None),
        ):
            happened = int(certified[:, policies].any(axis=1).sum())
            case = f"{samples:,} texts, {name} path, {what}"
            found.append(row(case, "certified", happened, REDRAWS, limit))
    return found


def expected_row(rng: np.random.Generator, samples: int) -> Row:
    """How often the next text disagrees under the policy that conformal risk control picks."""
    redraws = 20 * REDRAWS
    counts = nested_counts(rng, samples, redraws).tolist()
    picked = [controlled(line, samples, EPSILON) for line in counts]
    risks = [0.0 if index is None else PATH[index] * EPSILON for index in picked]
    happened = int((rng.random(redraws) < risks).sum())
    return row(f"{samples:,} texts, nested path", "next text disagrees", happened, redraws, EPSILON)


def nested_counts(
    rng: np.random.Generator, samples: int, redraws: int = REDRAWS
) -> NDArray[np.int64]:
    """Disagreements [redraws, policies] where a faster policy keeps every error of a slower one."""
    steps = np.diff(PATH * EPSILON, prepend=0.0)
    drawn = rng.multinomial(samples, (*steps, 1.0 - steps.sum()), redraws)
    return np.asarray(drawn[:, :-1].cumsum(axis=1), dtype=np.int64)


def accuracy_rows(rng: np.random.Generator, samples: int, tuning: int) -> list[Row]:
    """Policies of known drop: the mixture alone, with a bet from `tuning` other texts, and losses.

    The last is the exact binomial test of "losses are epsilon or more", which a drop implies.
    """
    found = []
    for drop, gain in DROPS_AND_GAINS:
        shares = (drop * EPSILON + gain, gain, 1 - drop * EPSILON - 2 * gain)
        counts = rng.multinomial(samples, shares, REDRAWS)[:, :2].tolist()
        tuned = rng.multinomial(tuning, shares, REDRAWS)[:, :2].tolist()
        p_values = {
            "mixture": [_drop_p_value(*line, samples, None) for line in counts],
            "tuned bet": [
                _drop_p_value(*line, samples, _bet(*other, tuning))
                for line, other in zip(counts, tuned, strict=True)
            ],
            "losses alone": [binomial_tail(losses, samples, EPSILON) for losses, _ in counts],
        }
        found += [
            row(
                f"{samples:,} texts, drop {drop:g} epsilon, gains {gain:.1%}",
                method,
                sum(p_value <= DELTA for p_value in values),
                REDRAWS,
                DELTA if drop >= 1 else None,
            )
            for method, values in p_values.items()
        ]
    return found


def adversarial_rows(rng: np.random.Generator, samples: int) -> list[Row]:
    """Streams built to look good whose mean loss is epsilon all the same."""
    index = np.arange(samples)
    half, odd = index < samples // 2, index % 2 == 1
    none = np.zeros(samples)
    # Probabilities of a loss and of a gain, row by row.
    streams: dict[str, tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]] = {
        "losses and no gains": (none + EPSILON, none),
        "wild: a gain or a loss every time": (none + (1 + EPSILON) / 2, none + (1 - EPSILON) / 2),
        "calm and wild in turn": (EPSILON + 0.49 * odd, 0.49 * odd),
        "all losses in the second half": (2 * EPSILON * ~half, none),
        "gains first, then losses": (2 * EPSILON * ~half + 0.2 * ~half, 0.2 * half),
        "gains and losses in turn": ((2 * EPSILON + 0.2) * odd, 0.2 * ~odd),
    }
    counts = {}
    for name, (loss, gain) in streams.items():
        drawn = rng.random((REDRAWS, samples))
        counts[name] = (drawn < loss).sum(axis=1), (drawn > 1 - gain).sum(axis=1)
    counts["adaptive: wild while behind, calm when ahead"] = _adaptive_counts(rng, samples)
    return [
        row(
            f"{samples:,} texts, {name}",
            "mixture",
            sum(
                _drop_p_value(lost, gained, samples, None) <= DELTA
                for lost, gained in zip(losses.tolist(), gains.tolist(), strict=True)
            ),
            REDRAWS,
            DELTA,
        )
        for name, (losses, gains) in counts.items()
    ]


def _passing_counts(samples: int) -> NDArray[np.bool_]:
    """For every count of disagreements, whether it is certified."""
    passes = np.zeros(samples + 1, dtype=bool)
    for count in range(samples + 1):
        if consistency_certificate(count, samples, epsilon=EPSILON, delta=DELTA) is None:
            break
        passes[count] = True
    return passes


@cache
def _drop_p_value(losses: int, gains: int, samples: int, bet: float | None) -> float:
    return accuracy_drop_p_value(losses, gains, samples, EPSILON, bet=bet)


@cache
def _bet(losses: int, gains: int, samples: int) -> float | None:
    return best_bet(losses, gains, samples, EPSILON)


def _adaptive_counts(
    rng: np.random.Generator, samples: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Losses and gains [redraws] against an adversary who sees every p-value so far."""
    losses, gains = np.zeros((2, REDRAWS), dtype=np.int64)
    for seen in range(samples):
        ahead = np.array(
            [
                _drop_p_value(lost, gained, seen, None) <= DELTA
                for lost, gained in zip(losses.tolist(), gains.tolist(), strict=True)
            ]
        )
        drawn = rng.random(REDRAWS)
        losses += drawn < np.where(ahead, EPSILON, (1 + EPSILON) / 2)
        gains += ~ahead & (drawn >= (1 + EPSILON) / 2)
    return losses, gains


def measure(runs: int, calm_rows: int) -> dict[str, Sequence[Row] | Sequence[Delay]]:
    """Every table by its title. runs, calm_rows: of the drift test."""
    rng = np.random.default_rng(20240607)
    tables: dict[str, Sequence[Row] | Sequence[Delay]] = {
        "Consistency": [*consistency_rows(rng, 1500), *consistency_rows(rng, 10_000)],
        "Expected disagreement": [expected_row(rng, samples) for samples in (100, 300, 1500)],
        "Accuracy drop": [*accuracy_rows(rng, 1500, 750), *accuracy_rows(rng, 10_000, 5000)],
        "Accuracy drop against adversaries": adversarial_rows(rng, 1000),
    }
    peak, found = delays(rng, runs, calm_rows)
    tables["Drift: false alarms"] = [
        row(
            f"{calm_rows:,} shadow rows at epsilon, alpha {alpha:.0%}",
            "alarm",
            int((peak >= 1 / alpha).sum()),
            runs,
            alpha,
        )
        for alpha in (0.01, 0.05, 0.2)
    ]
    tables["Drift: delay in shadow rows, alpha 1%"] = found
    return tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--runs", type=int, default=1000, help="runs of the drift test")
    parser.add_argument("--calm-rows", type=int, default=100_000, help="shadow rows of its calm")
    options = parser.parse_args()
    start = time.perf_counter()
    tables = measure(options.runs, options.calm_rows)
    seconds = time.perf_counter() - start
    if options.json:
        document = {title: [asdict(entry) for entry in found] for title, found in tables.items()}
        print(json.dumps({"seconds": round(seconds, 1), "tables": document}, indent=1))
        return
    for title, entries in tables.items():
        print(_markdown(title, entries))
    print(f"{seconds:.0f} s")


def _markdown(title: str, entries: Sequence[Row] | Sequence[Delay]) -> str:
    rows = [entry for entry in entries if isinstance(entry, Row)]
    if rows:
        tests = list(dict.fromkeys(entry.test for entry in rows))
        cells: dict[str, list[str]] = {}
        for entry in rows:
            share = f"{entry.happened / entry.of:.2%} ({entry.low:.2%} to {entry.high:.2%})"
            limit = "" if entry.limit is None else f"{entry.limit:.0%}"
            cells.setdefault(entry.case, [limit]).append(share)
        header = ["case", "at most", *tests]
        lines = [[case, *found] for case, found in cells.items()]
    else:
        header = ["change", "mean", "median", "90 %", "optimum", "runs", "missed"]
        lines = [
            [
                entry.what,
                *(f"{x:,.0f}" for x in (entry.mean, entry.median, entry.ninth_decile)),
                *(f"{x:,.0f}" for x in (entry.optimum, entry.runs, entry.missed)),
            ]
            for entry in entries
            if isinstance(entry, Delay)
        ]
    table = [header, ["---", *["--:"] * (len(header) - 1)], *lines]
    return "\n".join([f"## {title}\n", *("| " + " | ".join(line) + " |" for line in table), ""])


if __name__ == "__main__":
    main()
