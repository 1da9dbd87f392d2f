"""Whether the contracts hold on real texts, and what they allow.

`python -m bench.quality.contracts RECORD.npz …` prints the tables of docs/results/contracts.md;
`--json` the same numbers as one document. A record is what `python -m bench.quality.exit_outputs`
wrote, or a checkpoint folder whose data files are at hand.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.quality.contract_shift import Alarm, Shift, alarms, changes, shifts
from bench.quality.contract_splits import PATHS, Contract, contracts
from bench.quality.exit_outputs import ExitRecord, load_record, record_of

DRAWS, RUNS, SEED = 200, 100, 0
_KINDS = {
    "consistency": "consistency",
    "accuracy_drop": "accuracy drop",
    "expected_disagreement": "expected disagreement",
}


def measured(record: ExitRecord, draws: int, runs: int) -> dict[str, Any]:
    """Everything about one record, in JSON's own types."""
    return {
        "record": record.name,
        "texts": len(record.labels),
        "shifted_texts": 0 if record.shift_predicted is None else len(record.shift_predicted),
        "classes": record.classes,
        "accuracy_by_exit": (record.predicted == record.labels[:, None]).mean(axis=0).tolist(),
        "disagreement_by_exit": (record.predicted != record.predicted[:, -1:])
        .mean(axis=0)
        .tolist(),
        "contracts": [asdict(found) for found in contracts(record, draws, SEED)],
        "shifts": [
            asdict(found)
            for change in changes(record)
            for found in shifts(record, change, draws, SEED)
        ],
        "alarms": [
            asdict(found)
            for change in changes(record)
            for found in alarms(record, change, runs, SEED)
        ],
    }


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, first columns of words, the others of numbers."""
    marks = ["---" if name.islower() and name in _WORDS else "--:" for name in header]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, marks, *rows))


_WORDS = frozenset({"data", "promise", "epsilon", "change"})


def kept_table(found: Sequence[Contract]) -> str:
    """How often each contract was kept, both ways, with one threshold for all exits and by exit."""
    by_key = {(c.record, c.kind, c.epsilon, c.path, c.way): c for c in found}
    rows = []
    for key in dict.fromkeys((c.record, c.kind, c.epsilon) for c in found):
        draws = [by_key[(*key, path, way)] for way in ("redraw", "split") for path in PATHS]
        cells = [f"{c.kept / c.draws:.1%} ({c.kept_low:.1%} to {c.kept_high:.1%})" for c in draws]
        rows.append((key[0], _KINDS[key[1]], f"{key[2]:.1%}", *cells))
    header = ("Redraw", "Redraw, by exit", "Split", "Split, by exit")
    return table(("data", "promise", "epsilon", *header), rows)


def speed_table(found: Sequence[Contract]) -> str:
    """Average layers in the split draws: mean, quartiles, and each path against the constant."""
    split = {(c.record, c.kind, c.epsilon, c.path): c for c in found if c.way == "split"}
    rows = []
    for record, kind, epsilon in dict.fromkeys(key[:3] for key in split):
        one, by_exit = (split[record, kind, epsilon, path] for path in PATHS)
        rows.append(
            (
                record,
                _KINDS[kind],
                f"{epsilon:.1%}",
                *(_layers(contract) for contract in (one, by_exit)),
                f"{one.certified / one.draws:.0%}",
                f"{by_exit.layers / one.layers:.3f}",
            )
        )
    names = ("One threshold: mean (quartiles)", "By exit", "Certified", "Ratio")
    return table(("data", "promise", "epsilon", *names), rows)


def _layers(contract: Contract) -> str:
    first, middle, last = contract.layers_quartiles
    return f"{contract.layers:.2f} ({first:.2f}, {middle:.2f}, {last:.2f})"


def shift_table(found: Sequence[Shift]) -> str:
    rows = [
        (
            s.record,
            s.change,
            f"{s.shifted:.0%}",
            f"{s.broken / s.draws:.1%} ({s.broken_low:.1%} to {s.broken_high:.1%})",
            f"{s.disagreement:.2%}",
            f"{s.layers:.2f}",
        )
        for s in found
    ]
    return table(
        ("data", "change", "Other texts", "Contract broken", "Disagreement", "Layers"), rows
    )


def alarm_table(found: Sequence[Alarm]) -> str:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:,.0f}"

    rows = [
        (
            a.record,
            a.change,
            f"{a.shifted:.0%}",
            f"{a.shadow_share:.0%}",
            number(a.answers),
            number(a.answers_ninth_decile),
            number(a.shadow_rows),
            f"{a.runs}",
            f"{a.early}",
            f"{a.missed}",
        )
        for a in found
    ]
    header = ("Answers: median", "90 %", "Shadow rows: median", "Runs", "Early", "Missed")
    return table(("data", "change", "Other texts", "Shadow share", *header), rows)


def tables(found: Sequence[dict[str, Any]]) -> str:
    """All tables, one after the other."""
    each = [Contract(**row) for document in found for row in document["contracts"]]
    shifted = [Shift(**row) for document in found for row in document["shifts"]]
    alarmed = [Alarm(**row) for document in found for row in document["alarms"]]
    texts = [
        (
            document["record"],
            f"{document['texts']:,}",
            str(document["classes"]),
            " ".join(f"{100 * share:.1f}" for share in document["accuracy_by_exit"]),
            " ".join(f"{100 * share:.1f}" for share in document["disagreement_by_exit"][:-1]),
        )
        for document in found
    ]
    header = ("data", "Texts", "Labels", "Accuracy by exit, %", "Disagreement by exit, %")
    parts = [table(header, texts), kept_table(each), speed_table(each)]
    return "\n\n".join([*parts, shift_table(shifted), alarm_table(alarmed)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path, nargs="*", help=".npz files or checkpoint folders")
    parser.add_argument("--shift", type=Path, nargs="*", default=[], help="for checkpoints")
    parser.add_argument("--texts", type=int, help="texts of each record at most, drawn at random")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of the drift test")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--from-json", type=Path, nargs="*", default=[], help="show these again")
    options = parser.parse_args()
    found = [document for path in options.from_json for document in json.loads(path.read_text())]
    for path in options.records:
        record = record_of(path, shift=options.shift) if path.is_dir() else load_record(path)
        if options.texts is not None:
            record = record.some(options.texts, SEED)
        found.append(measured(record, options.draws, options.runs))
    print(json.dumps(found, indent=1) if options.json else tables(found))


if __name__ == "__main__":
    main()
