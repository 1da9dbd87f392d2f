"""Methods compared: mean, standard deviation, and paired 95 % intervals against the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from scipy.stats import t as student_t

from training.experiment.cell import Cell
from training.experiment.curves import area_under_curve, layers_saved

# A cell and the baseline's cell of the same task and seed to a difference; None where undefined.
Difference = Callable[[Cell, Cell], float | None]
Variant = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Mean of paired differences with its 95 % interval by Student's t; of one pair no interval."""

    mean: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        if self.pairs < 2:
            return f"{self.mean:+.2f} (1 pair)"
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRow:
    """A method on a task, or on all together (task None); points of 100.

    score: mean over exits, its mean and standard deviation over seeds (None of a single one).
    area: under the quality-speed curve. gain: of the mean over exits against the baseline. saved:
    layers saved at equal score against the baseline, in per cent.
    """

    task: str | None
    method: str
    settings: tuple[tuple[str, str], ...]
    seeds: int
    score: float
    score_deviation: float | None
    area: float
    gain: Interval | None
    saved: Interval | None


def paired_interval(differences: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Student's t interval of the mean; None for no differences."""
    count = len(differences)
    if count == 0:
        return None
    mean = math.fsum(differences) / count
    if count == 1:
        return Interval(mean=mean, low=-math.inf, high=math.inf, pairs=1)
    variance = math.fsum((value - mean) ** 2 for value in differences) / (count - 1)
    half = float(student_t.ppf(0.5 + confidence / 2, count - 1)) * math.sqrt(variance / count)
    return Interval(mean=mean, low=mean - half, high=mean + half, pairs=count)


def compare(cells: Iterable[Cell], baseline: str) -> tuple[MethodRow, ...]:
    """A row for every task and method, then rows of every method over all tasks.

    Over all tasks a pair is a seed: the mean over the tasks, so that the interval speaks of these
    tasks and other seeds. A seed that some task lacks still is left out there, and a method without
    any whole seed: means over other tasks would be compared. No such rows of a single task.
    cells: of one experiment, no two of a task, method, settings and seed (see `finished_cells`).
    """
    found = list(cells)
    references = {(cell.task, cell.seed): cell for cell in found if cell.method == baseline}
    tasks = list(dict.fromkeys(cell.task for cell in found))
    rows = []
    for task in (*tasks, None) if len(tasks) > 1 else tasks:
        groups: dict[Variant, list[Cell]] = {}
        for cell in found:
            if task is None or cell.task == task:
                variant = (cell.method, tuple(sorted(cell.settings.items())))
                groups.setdefault(variant, []).append(cell)
        for (method, settings), group in groups.items():
            by_seed = _by_seed(group, tasks=1 if task else len(tasks))
            if by_seed:
                rows.append(_row(task, method, settings, by_seed, references))
    return tuple(rows)


def _by_seed(group: Sequence[Cell], tasks: int) -> dict[int, list[Cell]]:
    """Cells of the seeds that have so many tasks."""
    found: dict[int, list[Cell]] = {}
    for cell in group:
        found.setdefault(cell.seed, []).append(cell)
    return {seed: cells for seed, cells in found.items() if len(cells) == tasks}


def comparison_table(rows: Sequence[MethodRow], baseline: str) -> str:
    """The rows as text."""
    lines = [
        f"{'task':<12}{'method':<34}{'seeds':>6}{'mean over exits':>18}{'area':>8}  "
        f"{'gain over ' + baseline:<26}{'layers saved, %':<26}"
    ]
    for row in rows:
        name = row.method + _swept(row, rows)
        lines.append(
            f"{row.task or 'all':<12}{name:<34}{row.seeds:>6}"
            f"{_score(row):>18}{row.area:>8.2f}  "
            f"{'' if row.gain is None else str(row.gain):<26}"
            f"{'' if row.saved is None else str(row.saved):<26}".rstrip()
        )
    return "\n".join(lines)


def _score(row: MethodRow) -> str:
    deviation = row.score_deviation
    return f"{row.score:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def _swept(row: MethodRow, rows: Sequence[MethodRow]) -> str:
    """The settings that tell a method's variants apart."""
    others = [dict(other.settings) for other in rows if other.method == row.method]
    differing = [
        f"{key.split('.')[-1]}={value}"
        for key, value in row.settings
        if any(other.get(key) != value for other in others)
    ]
    return f" {', '.join(differing)}" if differing else ""


def _row(
    task: str | None,
    method: str,
    settings: tuple[tuple[str, str], ...],
    by_seed: dict[int, list[Cell]],
    references: dict[tuple[str, int], Cell],
) -> MethodRow:
    scores = [_mean([100 * cell.mean_score for cell in of_seed]) for of_seed in by_seed.values()]
    return MethodRow(
        task=task,
        method=method,
        settings=settings,
        seeds=len(by_seed),
        score=_mean(scores),
        score_deviation=_deviation(scores) if len(scores) > 1 else None,
        area=_mean([100 * _area(cell) for of_seed in by_seed.values() for cell in of_seed]),
        gain=_against(by_seed, references, _gain),
        saved=_against(by_seed, references, _saved),
    )


def _against(
    by_seed: dict[int, list[Cell]], references: dict[tuple[str, int], Cell], difference: Difference
) -> Interval | None:
    pairs = []
    for of_seed in by_seed.values():
        others = [references.get((cell.task, cell.seed)) for cell in of_seed]
        found = [
            difference(cell, other)
            for cell, other in zip(of_seed, others, strict=True)
            if other is not None and other is not cell
        ]
        values = [value for value in found if value is not None]
        if values and None not in others:
            pairs.append(_mean(values))
    return paired_interval(pairs)


def _gain(cell: Cell, reference: Cell) -> float | None:
    """Points of the mean over the exits that both have: a plain k-layer model has only one."""
    own = dict(zip(cell.exits, cell.score_by_exit, strict=True))
    other = dict(zip(reference.exits, reference.score_by_exit, strict=True))
    both = own.keys() & other.keys()
    return 100 * _mean([own[layer] - other[layer] for layer in both]) if both else None


def _saved(cell: Cell, reference: Cell) -> float | None:
    if len(cell.exits) == 1:
        return None
    saved = layers_saved(cell.quality_speed, reference.quality_speed)
    return None if saved is None else 100 * saved


def _area(cell: Cell) -> float:
    return area_under_curve(
        cell.quality_speed, first_layer=cell.exits[0], last_layer=cell.exits[-1]
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _deviation(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
