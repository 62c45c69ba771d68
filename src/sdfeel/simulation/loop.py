"""The loop of Algorithm 1. Every scheme runs through it and every engine carries it out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.local import Rows
from sdfeel.algorithm.pace import Event
from sdfeel.errors import RunError
from sdfeel.records.checkpoints import Checkpoint, Row
from sdfeel.simulation.engines.engine import Engine
from sdfeel.simulation.evaluation import Evaluation
from sdfeel.simulation.state import State

__all__ = ["Keeper", "NoKeeper", "Outcome", "Progress", "run_loop"]

# How long (seconds of real time) an engine may work before the loop looks up again, for Ctrl-C, a
# checkpoint and the display; and the time of a client's step before one is known. Where the loop
# pauses changes no number.
LONGEST = 5.0
FIRST_STEP = 0.5e-3


@dataclass(frozen=True)
class Progress:
    """Where a run is."""

    iteration: int
    iterations: int
    seconds: float  # simulated
    client_steps: int  # done since this start
    elapsed: float  # real seconds since this start
    fraction: float  # of the whole run
    row: Row | None  # the newest evaluation
    resumed: float = 0.0  # the fraction that was done before this start

    @property
    def client_steps_per_second(self) -> float:
        return self.client_steps / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def left(self) -> float:
        """Real seconds to the end, at the pace since this start; not a number at its first step."""
        made = self.fraction - self.resumed
        return self.elapsed * (1 - self.fraction) / made if made > 0 else math.nan


@dataclass
class Outcome:
    """How a run ended."""

    iteration: int
    seconds: float
    rows: list[Row]
    mean: Tensor
    servers: Tensor
    client_steps: int
    elapsed: float
    interrupted: bool = False
    phases: dict[str, float] = field(default_factory=dict)  # real seconds by what they went into


class Keeper(Protocol):
    """Who decides when to stop or to save, and where to."""

    def stop(self) -> bool:
        """Whether the run should end now, after a last save."""

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint. Called only where `stop` or `due` said so, and at the end."""

    @property
    def keeps(self) -> bool:
        """Whether `save` keeps anything: a checkpoint copies all models."""


class NoKeeper:
    """Runs to the end and saves nothing."""

    keeps = False

    def stop(self) -> bool:
        return False

    def due(self) -> bool:
        return False

    def save(self, checkpoint: Checkpoint) -> None:
        pass


def run_loop(
    state: State,
    engine: Engine,
    evaluation: Evaluation,
    *,
    steps: int,
    until: float = float("inf"),
    keeper: Keeper | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_row: Callable[[list[Row]], None] = lambda _: None,
    start: Checkpoint | None = None,
) -> Outcome:
    """Algorithm 1 for k = 1..steps, or until the simulated clock shows `until` seconds."""
    run = _Run(state, engine, evaluation, keeper or NoKeeper(), steps, until)
    run.begin(start)
    if not run.rows:
        run.evaluate()
        on_row(run.rows)
    interrupted = False
    stop = run.next_stop()
    while not run.finished and not interrupted:
        if run.local_updates(stop):
            if run.aggregated:
                run.exchange()
            if run.k % evaluation.every == 0 or run.finished:
                run.evaluate()
                on_row(run.rows)
        on_progress(run.progress())
        interrupted, due, stop = run.look_up()
        if interrupted or due:
            run.save()
    if run.finished:
        run.save()
    return run.outcome(interrupted)


class _Run:
    """The variables of the loop, and its lines."""

    def __init__(
        self,
        state: State,
        engine: Engine,
        evaluation: Evaluation,
        keeper: Keeper,
        steps: int,
        until: float,
    ) -> None:
        self.state, self.engine, self.evaluation, self.keeper = state, engine, evaluation, keeper
        self.algorithm, self.steps, self.until = state.algorithm, steps, until
        self.clock = self.algorithm.clock()
        self.k = 0
        self._event: Event | None = None
        self.rows: list[Row] = []
        self.client_steps = 0
        self.phases = {"local updates": 0.0, "aggregation": 0.0, "evaluation": 0.0, "saving": 0.0}
        self.started = time.perf_counter()
        self.resumed = 0.0
        self.batch_loss = 0.0

    def begin(self, start: Checkpoint | None) -> None:
        if start is not None:
            self.k, self.rows = start.iteration, list(start.rows)
            self.clock.at = start.clock.numpy().copy()
            self.clock.steps = start.clock_steps
            self.batch_loss = start.batch_loss
            self.state.restore(start.tensors, self.event)
            self.resumed = self.fraction

    @property
    def event(self) -> Event:
        """The upload period of iteration k (or, at its end, the one that ends there)."""
        return self._event_of(max(self.k, 1))

    def _event_of(self, k: int) -> Event:
        if self._event is None or not self._event.first <= k <= self._event.last:
            self._event = self.algorithm.pace.next(k, self.algorithm, self.clock.at)
        return self._event

    @property
    def fraction(self) -> float:
        return min(1.0, max(self.k / self.steps, self.seconds / self.until))

    @property
    def finished(self) -> bool:
        """The clock is looked at only after an aggregation: when else depends on the machine."""
        late = self.k > 0 and self.aggregated and self.seconds >= self.until
        return self.k >= self.steps or late

    @property
    def seconds(self) -> float:
        return self.clock.seconds(self.event.clients)

    @property
    def rescued(self) -> str:
        """What is left of a run that cannot go on."""
        nothing = isinstance(self.keeper, NoKeeper)
        return "" if nothing else "; the last good checkpoint is kept"

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
        ahead = max(1, int(LONGEST / (step * self.state.block(self.engine))))
        return min(stop, self.k + ahead)

    def look_up(self) -> tuple[bool, bool, int]:
        """Whether to end here, whether a checkpoint is due, and the next stop; one message."""
        if self.finished:
            return False, False, self.k
        ours = [self.keeper.stop(), self.keeper.due(), self.next_stop()]
        end, due, stop = self.state.ranks.agree(ours)
        return bool(end), bool(due), stop

    def local_updates(self, last: int) -> bool:
        """Lines 3 to 8: every present client updates its model up to iteration `last`, and at the
        end of a period its server takes the mean. False if a signal came before that was done.
        """
        begin = time.perf_counter()
        first, event = self.k + 1, self._event_of(self.k + 1)
        # Ranks stop together or not at all, so none of them looks up in between.
        pause = self.keeper.stop if self.state.ranks.size == 1 else lambda: False
        losses = self.state.local_updates(self.engine, event, first, last, pause)
        if losses is not None:
            here = self.state.clients
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
            self.state.exchange(self.event.mixing)
        self.state.broadcast()
        self.algorithm.end(self.event, self.clock)
        self.phases["aggregation"] += time.perf_counter() - begin

    def mean(self) -> Tensor:
        """u_k: what the servers' weighted mean would be, were all to aggregate now."""
        return self.state.mean(self.event)

    def evaluate(self) -> None:
        begin = time.perf_counter()
        mean, servers = self.mean(), self.state.servers()
        if not bool(mean.isfinite().all() and servers.isfinite().all()):
            _refuse_non_finite_state(self.state.save(self.event), self.k, self.rescued)
        row: Row = {"iteration": self.k, "seconds": self.seconds}
        row |= self.evaluation.row(self.engine, self.state, mean, servers)
        since = self.k - int(self.rows[-1]["iteration"]) if self.rows else 0
        total = self.state.ranks.total(self.batch_loss)
        row["batch_loss"] = total / since if since else math.nan
        self.batch_loss = 0.0
        self.rows = [*self.rows, row]
        self.phases["evaluation"] += time.perf_counter() - begin

    def save(self) -> None:
        if not self.keeper.keeps:
            return
        begin = time.perf_counter()
        saved = self.state.save(self.event)
        if self.state.ranks.leads:
            _refuse_non_finite_state(saved, self.k, self.rescued)
            at = torch.from_numpy(self.clock.at.copy())
            self.keeper.save(
                Checkpoint(self.k, saved, at, self.clock.steps, self.rows, self.batch_loss)
            )
        self.phases["saving"] += time.perf_counter() - begin

    def progress(self) -> Progress:
        return Progress(
            iteration=self.k,
            iterations=self.steps,
            seconds=self.seconds,
            client_steps=self.client_steps,
            elapsed=time.perf_counter() - self.started,
            fraction=self.fraction,
            row=self.rows[-1] if self.rows else None,
            resumed=self.resumed,
        )

    def outcome(self, interrupted: bool) -> Outcome:
        return Outcome(
            iteration=self.k,
            seconds=self.seconds,
            rows=self.rows,
            mean=self.mean(),
            servers=self.state.servers(),
            client_steps=self.client_steps,
            elapsed=time.perf_counter() - self.started,
            interrupted=interrupted,
            phases=self.phases,
        )


def _refuse_non_finite(
    losses: NDArray[np.float64], clients: NDArray[np.int64], first: int, rescued: str
) -> None:
    bad = ~np.isfinite(losses)
    if bad.any():
        column = int(np.flatnonzero(bad.any(axis=0))[0])
        row = int(np.flatnonzero(bad[:, column])[0])
        raise RunError(
            f"the loss of client {clients[row]} became {losses[row, column]} at iteration "
            f"{first + column}{rescued}. A smaller lr may help, or look at that client's data."
        )


def _refuse_non_finite_state(saved: Rows, k: int, rescued: str) -> None:
    for name, rows in saved.items():
        if not bool(rows.isfinite().all()):
            number = int((~rows.isfinite().all(dim=1)).nonzero()[0])
            raise RunError(
                f"{name} {number} is no longer finite at iteration {k}{rescued}. "
                "A smaller lr may help."
            )
