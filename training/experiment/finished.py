"""Which cells of an experiment are finished: those of its file that its plan still asks for."""

from __future__ import annotations

import logging
from pathlib import Path

from training.experiment.cell import Cell, read_cells
from training.experiment.config import ExperimentConfig, planned_cells

logger = logging.getLogger(__name__)

CELLS_FILE = "cells.jsonl"


def finished_cells(experiment: ExperimentConfig, output: Path) -> tuple[Cell, ...]:
    """The experiment's own cells in `output`, in the order in which they finished.

    A file may also hold cells of an earlier form of the experiment, with another configuration of
    a task, say; compared with the others they would count a seed twice. They are left out, and
    told of. So are texts of a task's split that are not the same for all its cells.
    Raises DataError for a damaged file, ConfigurationError for a wrong configuration.
    """
    path = output / CELLS_FILE
    if not path.exists():
        return ()
    planned = {plan.key for plan in planned_cells(experiment)}
    found = read_cells(path)
    own = tuple(cell for cell in found if cell.key in planned)
    if len(own) < len(found):
        logger.warning(
            "%d of %d cells in %s are not of this experiment as it is now, and left out",
            len(found) - len(own),
            len(found),
            path,
        )
    for task in experiment.tasks:
        texts = {cell.data_sha256.get(cell.split) for cell in own if cell.task == task}
        if len(texts) > 1:
            logger.warning("%s: its cells were scored on different texts", task)
    return own
