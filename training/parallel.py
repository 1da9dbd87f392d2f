"""Ranks: the processes that train one model together, and what they tell each other.

Every rank holds the whole model and takes its rows of the same global mini-batch that one process
alone would form. Exits' outputs are gathered, so each rank computes the loss of the global batch,
contrasts across ranks included. A rank's gradient is then its own rows' share of the global one:
shares are summed over ranks, not averaged. `torchrun` or `accelerate launch` starts the processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist

from multi_exit.errors import ConfigurationError
from training.model import ExitBatch
from training.precision import choose_device

# The other ranks wait while the first scores an epoch's validation texts.
_LONGEST_WAIT = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that train together.

    rank: its number, from 0; world: how many there are. device: where this rank computes; None
    leaves the choice to the configuration. Alone (world 1) every method hands back what it was
    given and says nothing to anyone.
    """

    rank: int = 0
    world: int = 1
    device: torch.device | None = None

    @property
    def first(self) -> bool:
        """Whether this rank writes files and talks to the terminal."""
        return self.rank == 0

    def own_rows(self, rows: Sequence[int]) -> Sequence[int]:
        """This rank's rows of a global mini-batch: every world-th, so that lengths are alike.

        Ranks get equally many: who falls short repeats the first row, which `gather` leaves out.
        """
        if self.world == 1:
            return rows
        own = list(rows[self.rank :: self.world])
        return own if len(own) == -(-len(rows) // self.world) else [*own, rows[0]]

    def gather(self, own: ExitBatch, rows: int) -> ExitBatch:
        """Outputs for all `rows` rows of the global batch in its own order, in float32.

        Gradients flow back to this rank's outputs. Label embeddings are the same on all ranks:
        each rank's gradient at them is its world-th part, so that the sum over ranks is right.
        """
        if self.world == 1:
            return own
        hidden = own.representations.shape[-1]
        both = torch.cat([own.representations.float(), own.logits.float()], dim=-1)
        whole: Tensor = _GatherRows.apply(  # type: ignore[no-untyped-call]
            both, rows, self.rank, self.world
        )
        embeddings: Tensor = _ShareGradient.apply(  # type: ignore[no-untyped-call]
            own.label_embeddings, self.world
        )
        return ExitBatch(whole[..., :hidden], embeddings, whole[..., hidden:])

    def whole_exit_gradients(self, own: Sequence[Tensor]) -> Sequence[Tensor]:
        """Gradients at this rank's representations and at the label embeddings, made global.

        [exits, own rows, hidden] and [exits, K, hidden] -> [exits, rows, hidden], in the order of
        ranks and with zeros for repeated rows, and [exits, K, hidden].
        """
        if self.world == 1:
            return own
        at_rows, at_embeddings = own
        rows = torch.cat(_all_gather(at_rows.float(), self.world), dim=1)
        return (rows, *self.summed([at_embeddings]))

    def summed(self, own: Sequence[Tensor]) -> Sequence[Tensor]:
        """Sum over ranks of each tensor, in one message; the same bits on every rank."""
        if self.world == 1:
            return own
        flat = torch.cat([piece.detach().flatten() for piece in own])
        dist.all_reduce(flat)
        pieces = torch.split(flat, [piece.numel() for piece in own])
        return [piece.view_as(like) for piece, like in zip(pieces, own, strict=True)]

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sums the gradients that parameters have over ranks, in place."""
        if self.world == 1:
            return
        reached = [parameter for parameter in parameters if parameter.grad is not None]
        gradients = [parameter.grad for parameter in reached if parameter.grad is not None]
        for parameter, gradient in zip(reached, self.summed(gradients), strict=True):
            parameter.grad = gradient

    def as_first(self, value: Tensor) -> Tensor:
        """The first rank's value on all: a decision is taken once, whatever rounding does."""
        if self.world == 1:
            return value
        decided = value.detach().to(self.device, copy=True).contiguous()
        dist.broadcast(decided, src=0)
        return decided.to(value.device)

    def start_alike(self, model: nn.Module, step: int) -> None:
        """Gives all ranks the first one's weights.

        Raises ConfigurationError where ranks resume from different steps.
        """
        if self.world == 1:
            return
        steps = _all_gather(torch.tensor([step], device=self.device), self.world)
        if len({int(found) for found in steps}) > 1:
            raise ConfigurationError(
                "the processes do not see the same unfinished run; put the output on a file "
                "system that all of them share"
            )
        for value in model.state_dict().values():
            dist.broadcast(value, src=0)

    def seed_step(self, seed: int, step: int) -> None:
        """Dropout masks of this rank's own, which a resumed run finds again from the step alone."""
        if self.world > 1:
            state = np.random.SeedSequence((seed, self.rank, step)).generate_state(1, np.uint64)
            torch.manual_seed(int(state[0]))

    def wait(self) -> None:
        """Until all ranks have come here."""
        if self.world > 1:
            dist.all_reduce(torch.zeros(1, device=self.device))


ALONE = Ranks()


@contextmanager
def joined_ranks(device: str) -> Iterator[Ranks]:
    """The ranks of this launch, connected while the context lasts; ALONE without a launcher.

    device: auto, cpu or cuda, as in the configuration. Raises ConfigurationError where a GPU was
    asked for and there is none.
    """
    # Launchers speak by the environment; without one, accelerate is not even imported.
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    from accelerate import PartialState

    state = PartialState(cpu=choose_device(device).type == "cpu", timeout=_LONGEST_WAIT)
    try:
        yield replace(
            ALONE, rank=state.process_index, world=state.num_processes, device=state.device
        )
    finally:
        state.destroy_process_group()


class _GatherRows(torch.autograd.Function):
    """[exits, own rows, d] of every rank -> [exits, rows, d]; row i lies on rank i % world."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, rows: int, rank: int, world: int) -> Tensor:
        ctx.rank, ctx.world, ctx.own_rows = rank, world, own.shape[1]
        # Interleaved again, the repeated rows of short ranks come last, and are cut off.
        interleaved = torch.stack(_all_gather(own, world), dim=2).flatten(1, 2)
        return interleaved[:, :rows].contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        # Every rank computes the whole loss, so the gradient at its rows is complete already.
        mine = gradients[0][:, ctx.rank :: ctx.world]
        repeated = ctx.own_rows - mine.shape[1]
        return nn.functional.pad(mine, (0, 0, 0, repeated)), None, None, None


class _ShareGradient(torch.autograd.Function):
    """A tensor that every rank has and uses for the whole loss: a world-th of its gradient."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, world: int) -> Tensor:
        ctx.world = world
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] / ctx.world, None


def _all_gather(own: Tensor, world: int) -> list[Tensor]:
    """The tensor of every rank, without gradients; equal shapes."""
    sent = own.detach().contiguous()
    found = [torch.empty_like(sent) for _ in range(world)]
    dist.all_gather(found, sent)
    return found
