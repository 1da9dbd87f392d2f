"""A run's history as scalars for TensorBoard: losses, scores by exit, and angles of gradients.

Needs tensorboardX, which the extra `tracking` brings: importing this file without it raises
ConfigurationError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from multi_exit.errors import CheckpointError, ConfigurationError
from training.checkpoint import load_manifest
from training.history import HISTORY_FILE, History

try:
    from tensorboardX import SummaryWriter
except ModuleNotFoundError as error:
    raise ConfigurationError(
        "tracking needs the package 'tensorboardX'; install `patamar[tracking]`"
    ) from error

_TERMS = ("cross_entropy", "contrastive", "teacher")

# Tag, step and value of one scalar.
Scalar = tuple[str, int, float]


def write_scalars(checkpoint: Path, folder: Path) -> None:
    """Writes a finished run's history into `folder`, one event file.

    A folder that holds something already is left as it is: a second event file would draw every
    line twice. Raises CheckpointError for a checkpoint or a history that is damaged.
    """
    if folder.exists() and any(folder.iterdir()):
        return
    exits = load_manifest(checkpoint).exits
    try:
        found = [s for line in History(checkpoint / HISTORY_FILE).lines() for s in _of(line, exits)]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{checkpoint / HISTORY_FILE} is damaged: {error!r}") from error
    with SummaryWriter(str(folder)) as writer:
        for tag, step, value in found:
            writer.add_scalar(tag, value, step)


def _of(line: dict[str, Any], exits: Sequence[int]) -> Iterator[Scalar]:
    """The scalars of one line of a history."""
    step = line["step"]
    if line["kind"] == "step":
        yield "loss/total", step, line["total"]
        for term in _TERMS:
            yield from _by_exit(f"loss/{term}", step, line[term], exits)
    elif line["kind"] == "epoch":
        yield from _by_exit(f"validation_{line['metric']}", step, line["scores_by_exit"], exits)
    elif line["kind"] == "angles":
        for term in ("contrastive", "teacher"):
            degrees = f"{term}_degrees"
            yield from _by_exit(
                f"angle_{term}/representation", step, line["representation"][degrees], exits
            )
            # One angle for all exits.
            for value in (line["parameters"][degrees] or ())[:1]:
                yield f"angle_{term}/parameters", step, value


def _by_exit(
    name: str, step: int, values: Sequence[float] | None, exits: Sequence[int]
) -> Iterator[Scalar]:
    # The teacher's term has no value for the last exit, the teacher itself.
    for layer, value in zip(exits, values or (), strict=False):
        yield f"{name}/exit_{layer}", step, value
