"""What a training step costs by method: forward, loss, gate, backward and the optimiser's move.

Every contender has a model of its own with the same weights and takes real steps on the same
mini-batches, interleaved in one run: ratios of one round are comparable, absolute times are not.
`python -m bench.training_cost --config CONFIG --json`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

import numpy as np

from bench.interleave import Ratio, interleaved_seconds, ratio
from bench.machine import describe_machine
from multi_exit.errors import ConfigurationError
from training.batches import epoch_order
from training.config import TrainingConfig, load_config
from training.history import HISTORY_FILE, History
from training.setup import set_up
from training.train import train_batch

BASELINE = "ce"
# Name to what is set on top of the configuration. All train every exit at every step.
CONTENDERS: dict[str, dict[str, str]] = {
    BASELINE: {"method": "ce"},
    "acl-cl, gate representation": {"method": "acl-cl", "gate": "representation"},
    "acl-cl, gate parameters": {"method": "acl-cl", "gate": "parameters"},
    "acl-grad, gate representation": {"method": "acl-grad", "gate": "representation"},
    "acl-grad, gate parameters": {"method": "acl-grad", "gate": "parameters"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """One contender: median seconds a step over rounds, and its ratio to CE, round by round."""

    contender: str
    step_seconds: float
    ratio: Ratio


def measure_training_cost(
    config: TrainingConfig,
    *,
    rounds: int,
    steps_a_round: int,
    contenders: Sequence[str] = tuple(CONTENDERS),
    seed: int = 0,
) -> list[StepCost]:
    """Times all contenders on mini-batches of the configuration's training texts.

    In a round every contender takes `steps_a_round` steps on the same mini-batches. Raises
    ConfigurationError for fewer than 2 rounds: an interval needs several.
    """
    if rounds < 2 or steps_a_round < 1:
        raise ConfigurationError("at least 2 rounds of at least 1 step")
    rng = np.random.default_rng(seed)
    names = list(dict.fromkeys([BASELINE, *contenders]))
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / HISTORY_FILE)
        steps = {name: _stepper(_with(config, CONTENDERS[name]), history) for name in names}
        seconds = interleaved_seconds(steps, rounds=rounds, repeats=steps_a_round, rng=rng)
    return [
        StepCost(
            contender=name,
            step_seconds=float(np.median(seconds[name])),
            ratio=ratio(seconds[name], seconds[BASELINE], rng),
        )
        for name in names
    ]


def cost_table(costs: Sequence[StepCost]) -> str:
    """The results as a Markdown table."""
    lines = ["| method | step, s | cost / CE (95 % interval) |", "|---|--:|--:|"]
    lines += [
        f"| {c.contender} | {c.step_seconds:.3f} "
        f"| {c.ratio.median:.2f} ({c.ratio.low:.2f} to {c.ratio.high:.2f}) |"
        for c in costs
    ]
    return "\n".join(lines)


def _with(config: TrainingConfig, settings: dict[str, str]) -> TrainingConfig:
    changed = {**settings, "log_angles_every": 0}
    return config.model_copy(update={"objective": config.objective.model_copy(update=changed)})


def _stepper(config: TrainingConfig, history: History) -> Callable[[], object]:
    """One real step of training a call, on the next mini-batch."""
    run = set_up(config)
    lengths = [len(text) for text in run.train.texts]
    order = epoch_order(lengths, config.run.batch_size, seed=config.run.seed, epoch=0)
    # Full mini-batches alone; all contenders see the same ones in the same order.
    full = [rows for rows in order if len(rows) == min(config.run.batch_size, len(lengths))]
    batches: Iterator[list[int]] = cycle(full)
    numbers = cycle(range(run.steps))
    return lambda: train_batch(run, history, next(batches), next(numbers))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.training_cost", description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("quickstart/training.toml"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=1, help="steps a round and contender")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    costs = measure_training_cost(
        load_config(options.config, options.set),
        rounds=options.rounds,
        steps_a_round=options.steps,
        contenders=options.contenders,
    )
    if options.json:
        command = ["python", "-m", "bench.training_cost", *(arguments or sys.argv[1:])]
        found = {"machine": describe_machine(), "command": command}
        print(json.dumps({**found, "costs": [asdict(cost) for cost in costs]}))
    else:
        print(cost_table(costs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
