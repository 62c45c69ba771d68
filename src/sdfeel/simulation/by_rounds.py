"""A run in rounds: Algorithm 1, iteration by iteration, the same one for everybody."""

from __future__ import annotations

import math
import time

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.local import Rows
from sdfeel.algorithm.pace import Event
from sdfeel.errors import DivergedError
from sdfeel.records.checkpoints import Checkpoint, Row
from sdfeel.simulation.ranks import Ranks
from sdfeel.simulation.running import Means, Run
from sdfeel.simulation.state import State

__all__ = ["RoundRun"]

# How long (seconds of real time) an engine may work before the loop looks up again, for Ctrl-C, a
# checkpoint and the display; and the time of a client's step before one is known. Where the loop
# pauses changes no number.
LONGEST = 5.0
FIRST_STEP = 0.5e-3


class RoundRun(Run):
    """Everybody is at the same iteration."""

    def __init__(self, state: State, means: Means) -> None:
        super().__init__(state.algorithm, means)
        self.held = state
        self.clock = self.algorithm.clock()
        self.k = 0
        self._event: Event | None = None

    @property
    def ranks(self) -> Ranks:
        return self.held.ranks

    def begin(self, start: Checkpoint | None) -> None:
        if start is not None:
            self.k, self.rows = start.iteration, list(start.rows)
            self.clock.at = start.clock.numpy().copy()
            self.clock.steps = start.clock_steps
            if "servers.waited" in start.tensors:
                self.clock.waited = start.tensors["servers.waited"].numpy()[:, 0].copy()
            self.batch_loss = start.batch_loss
            self.held.restore(start.tensors, self.event)
            self.engine.recall(start.tensors)
            self.resumed = self.fraction

    @property
    def event(self) -> Event:
        """The upload period of iteration k (or, at its end, the one that ends there)."""
        return self._event_of(max(self.k, 1))

    def _event_of(self, k: int) -> Event:
        if self._event is None or not self._event.first <= k <= self._event.last:
            self._event = self.algorithm.rounds.next(k, self.algorithm, self.clock.at)
        return self._event

    @property
    def finished(self) -> bool:
        """The clock is looked at only after an aggregation: when else depends on the machine."""
        late = self.k > 0 and self.aggregated and self.seconds >= self.until
        return self.k >= self.steps or late or self.stopped

    @property
    def seconds(self) -> float:
        return self.clock.seconds(self.event.clients)

    @property
    def evaluates(self) -> bool:
        return self._regular(self.k) or self.finished

    def _regular(self, iteration: int) -> bool:
        return iteration % self.evaluation.every == 0

    @property
    def evaluated(self) -> bool:
        return bool(self.rows) and int(self.rows[-1]["iteration"]) == self.k

    @property
    def idle_share(self) -> float:
        return self.clock.idle_share

    @property
    def aggregated(self) -> bool:
        """Whether every client holds its server's model."""
        return self.k in (0, self.event.last)

    def next_stop(self) -> int:
        """The next iteration after which something else than a local update happens.

        In the middle of a period only where a run is evaluated or ends, or where the clients that
        an engine works on at a time would keep it too long from looking up. The first stop is the
        same at every rank; later ones are agreed on, as ranks measure time.
        """
        every = self.evaluation.every
        last = self._event_of(self.k + 1).last
        stop = min(last, (self.k // every + 1) * every, self.steps)
        spent, done = self.phases["local updates"], self.client_steps
        step = spent / done if done else FIRST_STEP
        ahead = max(1, int(LONGEST / (step * self.held.block(self.engine))))
        return min(stop, self.k + ahead)

    def local_updates(self, last: int) -> bool:
        """Lines 3 to 8: every present client updates its model up to iteration `last`, and at the
        end of a period its server takes the mean. False if a signal came before that was done.
        """
        begin = time.perf_counter()
        first, event = self.k + 1, self._event_of(self.k + 1)
        # Ranks stop together or not at all, so none of them looks up in between.
        pause = self.keeper.stop if self.held.ranks.size == 1 else lambda: False
        losses = self.held.local_updates(self.engine, event, first, last, pause)
        if losses is not None:
            here = self.held.clients
            if self.engine.tells_losses:
                _refuse_non_finite(losses, here[event.clients[here]], first, self.rescued)
            self.k = last
            present = max(int(event.clients.sum()), 1)
            for column in losses.T:
                # Exact sums: where the loop paused must not show in the last bits.
                self.batch_loss += math.fsum(column) / present
            self.clock.local_updates(last - first + 1)
            self.client_steps += int(event.clients.sum()) * (last - first + 1)
        self.phases["local updates"] += time.perf_counter() - begin
        return losses is not None

    def exchange(self) -> None:
        """Lines 9 to 17: on a multiple of tau1 tau2 the servers exchange models with each other."""
        begin = time.perf_counter()
        if self.event.mixing is not None:
            self.held.exchange(self.event.mixing)
        self.held.broadcast()
        self.algorithm.end(self.event, self.clock)
        self.phases["aggregation"] += time.perf_counter() - begin

    def mean(self) -> Tensor:
        """u_k: what the servers' weighted mean would be, were all to aggregate now."""
        return self.held.mean(self.event)

    def servers(self) -> Tensor:
        return self.held.servers(self.event if self.algorithm.each else None)

    def row(self, mean: Tensor, servers: Tensor) -> Row:
        return self.evaluation.row(self.engine, self.held, mean, servers)

    def mean_batch_loss(self) -> float:
        since = self.k - int(self.rows[-1]["iteration"]) if self.rows else 0
        total = self.ranks.total(self.batch_loss)
        if self._regular(self.k):
            self.batch_loss = 0.0
        return total / since if since else math.nan

    def state(self) -> Rows:
        return self.held.save(self.event)

    def checkpoint(self, saved: Rows) -> Checkpoint:
        at = torch.from_numpy(self.clock.at.copy())
        saved = saved | {"servers.waited": torch.from_numpy(self.clock.waited[:, None].copy())}
        # A row that is there only because the run ends is made again if it ends there again.
        rows = self.rows[:-1] if self.finished and not self._regular(self.k) else self.rows
        return Checkpoint(self.k, saved, at, self.clock.steps, rows, self.batch_loss)


def _refuse_non_finite(
    losses: NDArray[np.float64], clients: NDArray[np.int64], first: int, rescued: str
) -> None:
    bad = ~np.isfinite(losses)
    if bad.any():
        column = int(np.flatnonzero(bad.any(axis=0))[0])
        row = int(np.flatnonzero(bad[:, column])[0])
        raise DivergedError(
            f"the loss of client {clients[row]} became {losses[row, column]} at iteration "
            f"{first + column}{rescued}. A smaller lr may help, or look at that client's data."
        )
