"""Which parameters belong together: embeddings, each layer, each exit, and all of them."""

from __future__ import annotations

from collections.abc import Sequence

from training.model import MultiExitModel

TOTAL = "total"


def parameter_groups(model: MultiExitModel) -> dict[str, tuple[int, ...]]:
    """Group to the places of its parameters among the model's trained ones; `total` has all.

    Layers and exits are named by layer, counted from 1. Every parameter but those of `total` is in
    one group; what all layers share (MPNet's positions) counts as embeddings.
    """
    names = [name for name, value in model.named_parameters() if value.requires_grad]
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        groups.setdefault(_group(name, model.exits), []).append(place)
    order = sorted(groups, key=_rank)
    return {**{name: tuple(groups[name]) for name in order}, TOTAL: tuple(range(len(names)))}


def _group(name: str, exits: Sequence[int]) -> str:
    part, *rest = name.split(".")
    if part == "heads":
        return f"exit {exits[int(rest[0])]}"
    if rest[0] == "layers":
        return f"layer {int(rest[1]) + 1}"
    return "embeddings"


def _rank(group: str) -> tuple[int, int]:
    kind, _, number = group.partition(" ")
    return ["embeddings", "layer", "exit"].index(kind), int(number or 0)
