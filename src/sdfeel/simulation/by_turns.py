"""A run by turns: groups of clients are ready one after the other, and nobody waits."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.local import Rows
from sdfeel.algorithm.turns import Agenda, Turn
from sdfeel.errors import DivergedError
from sdfeel.records.checkpoints import Checkpoint, Row
from sdfeel.simulation.ranks import Ranks
from sdfeel.simulation.running import Means, Run
from sdfeel.simulation.turns import TurnState

__all__ = ["TurnRun"]


class TurnRun(Run):
    """k is the iteration of the slowest group; a run is evaluated where it passes `every`."""

    def __init__(self, state: TurnState, agenda: Agenda, means: Means) -> None:
        super().__init__(state.algorithm, means)
        self.held, self.agenda = state, agenda
        self.k = 0
        self._counted = 0  # mini-batches since the last evaluation
        self._trained: list[Turn] = []
        self._seen = -1  # turns that were taken when the last evaluation was made

    @property
    def ranks(self) -> Ranks:
        return self.held.ranks

    def begin(self, start: Checkpoint | None) -> None:
        if start is None:
            return
        self.agenda.restore({n: t.numpy() for n, t in start.tensors.items()})
        self.held.restore(start.tensors)
        self.engine.recall(start.tensors)
        self.k, self.rows = start.iteration, list(start.rows)
        self.batch_loss, self._counted = start.batch_loss, start.clock_steps
        self.resumed = self.fraction
        if self.finished:  # which ends with an evaluation
            self._seen = int(self.agenda.turns.sum())

    @property
    def seconds(self) -> float:
        return self.agenda.seconds

    @property
    def idle_share(self) -> float:
        return self.agenda.idle_share

    @property
    def finished(self) -> bool:
        return self.k >= self.steps or self.seconds >= self.until or self.stopped

    @property
    def aggregated(self) -> bool:
        return True

    @property
    def evaluated(self) -> bool:
        """Turns tell, not k: that of the slowest group may stand still while others go on."""
        return self._seen == int(self.agenda.turns.sum())

    @property
    def evaluates(self) -> bool:
        every = self.evaluation.every
        return self.k // every > int(self.rows[-1]["iteration"]) // every or self.finished

    def next_stop(self) -> int:
        """A window ends where its turns say; no rank needs to be told."""
        return self.k

    def local_updates(self, last: int) -> bool:  # noqa: ARG002 - the agenda knows
        """The groups of the next turns train, all in one call."""
        begin = time.perf_counter()
        turns, after = self.agenda.window(self.evaluation.every, self.steps, self.until)
        # Ranks stop together or not at all, so none of them looks up in between.
        pause = self.keeper.stop if self.ranks.size == 1 else lambda: False
        losses = self.held.local_updates(self.engine, turns, pause)
        if losses is not None:
            if self.engine.tells_losses:
                self._refuse_non_finite(turns, losses)
            self.agenda, self._trained = after, turns
            self.batch_loss += math.fsum(float(own.sum()) for own in losses)
            steps = [int((t.part.last - t.part.first + 1).sum()) for t in turns]
            self.client_steps += sum(steps)
            self._counted += sum(steps)
        self.phases["local updates"] += time.perf_counter() - begin
        return losses is not None

    def exchange(self) -> None:
        begin = time.perf_counter()
        self.held.take(self._trained)
        self.k, self._trained = self.agenda.k, []
        self.phases["aggregation"] += time.perf_counter() - begin

    def mean(self) -> Tensor:
        return self.held.mean()

    def servers(self) -> Tensor:
        return self.held.servers()

    def row(self, mean: Tensor, servers: Tensor) -> Row:
        self._seen = int(self.agenda.turns.sum())
        return self.evaluation.row(self.engine, self.held, mean, servers)

    def mean_batch_loss(self) -> float:
        total, count = self.ranks.total(self.batch_loss), self._counted
        self.batch_loss, self._counted = 0.0, 0
        return total / count if count else math.nan

    def state(self) -> Rows:
        return self.held.save()

    def checkpoint(self, saved: Rows) -> Checkpoint:
        numbers = {name: torch.from_numpy(own) for name, own in self.agenda.numbers().items()}
        at = torch.from_numpy(self.agenda.begun.copy())
        return Checkpoint(self.k, saved | numbers, at, self._counted, self.rows, self.batch_loss)

    def _refuse_non_finite(
        self, turns: Sequence[Turn], losses: Sequence[NDArray[np.float64]]
    ) -> None:
        held = self.held.trained_here(turns)
        for (client, first), own in zip(held, losses, strict=True):
            bad = np.flatnonzero(~np.isfinite(own))
            if len(bad):
                raise DivergedError(
                    f"the loss of client {client} became {own[bad[0]]} at its iteration "
                    f"{first + bad[0]}{self.rescued}. A smaller lr may help, or look at that "
                    "client's data."
                )
