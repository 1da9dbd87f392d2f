"""How the score depends on lambda, the weight of the contrastive term."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from multi_exit.errors import DataError
from training.config import ObjectiveConfig
from training.experiment.cell import Cell
from training.report.groups import Group, Panel, panels_of, seeds_phrase, spread
from training.report.numbers import Table
from training.report.style import (
    drawing,
    headline,
    legend_below,
    method_styles,
    panels,
    readable,
    score_axis,
)

_KEY = "objective.contrastive_weight"
_ASIDE = 1.05
_METHODS_WITHOUT = ("ce", "self-distillation", "deebert", "berxit")


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Groups of one method, by ascending lambda, that differ in nothing else but seeds.

    Where every lambda was trained with one setting of all else, what moves along is let be (say
    teacher_weight, kept equal to lambda).
    """

    method: str
    weights: tuple[float, ...]
    groups: tuple[Group, ...]


def sweeps_of(panel: Panel) -> tuple[Sweep, ...]:
    """A sweep over two values of lambda or more for each method that has one.

    Of several, with other things changed between them, that of the most trainings, then of the
    highest mean score.
    """
    found = []
    for method in dict.fromkeys(group.method for group in panel.groups):
        groups = [
            group
            for group in panel.groups
            if group.method == method and group.objective not in _METHODS_WITHOUT
        ]
        moves_alone = len({_weight(group) for group in groups}) == len(groups)
        series: dict[str, list[Group]] = {}
        for group in groups:
            series.setdefault("" if moves_alone else _other_settings(group), []).append(group)
        swept = [sorted(members, key=_weight) for members in series.values() if len(members) > 1]
        if swept:
            best = max(swept, key=_rank)
            found.append(Sweep(method, tuple(map(_weight, best)), tuple(best)))
    return tuple(found)


def _rank(groups: Sequence[Group]) -> tuple[int, float]:
    trainings = sum(len(group.cells) for group in groups)
    return trainings, float(np.mean([_score(group)[0] for group in groups]))


def has_sweep(cells: Sequence[Cell]) -> bool:
    """Whether some method was trained with several lambdas."""
    return any(sweeps_of(panel) for panel in panels_of(cells))


def contrastive_weight_table(cells: Sequence[Cell]) -> Table:
    """Mean over exits, then mean and standard deviation over seeds, for every lambda of a sweep."""
    rows = []
    for panel in panels_of(cells):
        for sweep in sweeps_of(panel):
            for weight, group in zip(sweep.weights, sweep.groups, strict=True):
                mean, deviation = _score(group)
                rows.append(
                    (
                        panel.task,
                        panel.metric,
                        sweep.method,
                        group.settings,
                        weight,
                        len(group.cells),
                        mean,
                        deviation,
                    )
                )
    columns = "task metric method settings contrastive_weight seeds mean standard_deviation"
    return Table(tuple(columns.split()), tuple(rows))


@drawing
def contrastive_weight_figure(cells: Sequence[Cell]) -> Figure:
    """Score, mean over exits, against lambda; cross-entropy alone as a level line.

    The axis is logarithmic; lambda 0 has a place of its own at the left.
    Raises ValueError where nothing was swept.
    """
    found = [(panel, sweeps) for panel in panels_of(cells) if (sweeps := sweeps_of(panel))]
    if not found:
        raise ValueError(f"no method was trained with several values of {_KEY}")
    figure, axes = panels(len(found))
    styles = method_styles(["ce", *(sweep.method for _, sweeps in found for sweep in sweeps)])
    for one, (panel, sweeps) in zip(axes, found, strict=True):
        zero = _place_of_zero(sweeps)
        baseline = next((g for g in panel.one_a_method() if g.objective == "ce"), None)
        if baseline is not None:
            level = _score(baseline)[0]
            one.axhline(level, color=styles["ce"].colour, linestyle="--", label="ce (no lambda)")
        for place, sweep in enumerate(sweeps):
            # A little beside each other, so that bars do not cover bars.
            aside = _ASIDE ** (place - (len(sweeps) - 1) / 2)
            scores = [_score(group) for group in sweep.groups]
            one.errorbar(
                [(weight or zero) * aside for weight in sweep.weights],
                [mean for mean, _ in scores],
                yerr=[deviation or 0.0 for _, deviation in scores],
                label=readable(sweep.method),
                elinewidth=0.9,
                capsize=2,
                **styles[sweep.method].keywords(),
            )
        _label(one, panel, sweeps, zero)
    groups = [group for _, sweeps in found for sweep in sweeps for group in sweep.groups]
    headline(figure, f"Score over all exits by lambda: {seeds_phrase(groups, 'bars')}")
    legend_below(figure, axes)
    return figure


def _label(axes: Axes, panel: Panel, sweeps: Sequence[Sweep], zero: float) -> None:
    weights = sorted({weight for sweep in sweeps for weight in sweep.weights})
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(_apart([weight or zero for weight in weights])))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: "0" if 0 in weights and np.isclose(x, zero) else f"{x:.3g}")
    )
    axes.set_title(panel.title)
    axes.set_xlabel("Weight of the contrastive term, lambda")
    score_axis(axes, panel.metric)


def _apart(places: Sequence[float]) -> list[float]:
    """Places whose tick labels do not touch: a tenth of the axis apart at least."""
    gap = (np.log(places[-1]) - np.log(places[0])) / 9
    kept = [places[0]]
    for place in places[1:]:
        if np.log(place) - np.log(kept[-1]) >= gap:
            kept.append(place)
    return kept


def _place_of_zero(sweeps: Sequence[Sweep]) -> float:
    """Where lambda 0 stands on a logarithmic axis: as far left again as the lambdas are apart."""
    positive = sorted({weight for sweep in sweeps for weight in sweep.weights if weight > 0})
    if len(positive) < 2:
        return (positive or [1.0])[0] / 10
    return float(positive[0] * (positive[0] / positive[-1]) ** (1 / (len(positive) - 1)))


def _weight(group: Group) -> float:
    given = group.cells[0].settings.get(_KEY, ObjectiveConfig().contrastive_weight)
    try:
        return float(str(given))
    except ValueError as error:
        raise DataError(
            f"{_KEY} must be a number; a training of {group.method} has {given!r}"
        ) from error


def _other_settings(group: Group) -> str:
    others = {key: value for key, value in group.cells[0].settings.items() if key != _KEY}
    return json.dumps([others, group.exits], sort_keys=True)


def _score(group: Group) -> tuple[float, float | None]:
    """Mean over exits: mean and standard deviation over seeds."""
    by_seed = group.scores.mean(axis=1)
    deviation = spread(by_seed)
    return float(by_seed.mean()), None if deviation is None else float(deviation)
