"""Draws held-out shares of the training texts: stratified by label, decided by a seed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

from training.data.example import LabelledExample


def hold_out(
    examples: Sequence[LabelledExample], shares: dict[str, float], seed: int
) -> tuple[list[LabelledExample], dict[str, list[LabelledExample]]]:
    """What stays for training, and each share by its name; all in the order of `examples`.

    Each share is drawn within each label, so that rare labels are in every split alike; every
    label keeps a text for training. Texts that occur twice, even under different labels, stay on
    one side: a text seen in training calibrates nothing.
    """
    belongs: dict[int, str] = {}
    carried = dict.fromkeys(shares, 0.0)
    generator = random.Random(seed)
    for _, groups in sorted(_groups_by_label(examples).items()):
        rows = sum(map(len, groups))
        generator.shuffle(groups)
        for name, share in shares.items():
            # What rounding leaves over is carried to the next label, so shares come out exact.
            wanted = share * rows + carried[name]
            taken = 0
            while len(groups) > 1 and taken < round(wanted):
                group = groups.pop()
                belongs.update(dict.fromkeys(group, name))
                taken += len(group)
            carried[name] = wanted - taken
    kept = [example for row, example in enumerate(examples) if row not in belongs]
    held_out = {
        name: [example for row, example in enumerate(examples) if belongs.get(row) == name]
        for name in shares
    }
    return kept, held_out


def _groups_by_label(examples: Sequence[LabelledExample]) -> dict[str, list[list[int]]]:
    """Rows of equal texts, grouped, under the label of the first of them."""
    groups: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for row, example in enumerate(examples):
        groups[example.text, example.text_pair].append(row)
    by_label: dict[str, list[list[int]]] = defaultdict(list)
    for rows in groups.values():
        by_label[examples[rows[0]].label].append(rows)
    return by_label
