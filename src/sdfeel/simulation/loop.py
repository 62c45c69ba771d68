"""The loop of Algorithm 1. Every scheme runs through it and every engine carries it out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.schemes import Plan
from sdfeel.errors import RunError
from sdfeel.simulation.engines.engine import AveragingRule, Engine, EngineState, Mask
from sdfeel.simulation.evaluation import Evaluation, Row

__all__ = ["Keeper", "NoKeeper", "Outcome", "Progress", "Snapshot", "run_loop"]

# The loop looks up at least this often (seconds of real time): for Ctrl-C, a checkpoint, the
# display. Where it pauses changes no number.
RESPONSE = 0.5


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


@dataclass(frozen=True)
class Snapshot:
    """All that a run needs to go on, bit for bit."""

    iteration: int
    clock_at: NDArray[np.float64]
    clock_steps: int
    state: EngineState
    rows: list[Row]
    batch_loss: float = 0.0  # sum of the mean batch losses since the last evaluation


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

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot. Called only where `stop` or `due` said so, and at the end."""

    @property
    def keeps(self) -> bool:
        """Whether `save` keeps anything: a snapshot copies all models."""


class NoKeeper:
    """Runs to the end and saves nothing."""

    keeps = False

    def stop(self) -> bool:
        return False

    def due(self) -> bool:
        return False

    def save(self, snapshot: Snapshot) -> None:
        pass


def run_loop(
    plan: Plan,
    engine: Engine,
    evaluation: Evaluation,
    *,
    steps: int,
    until: float = float("inf"),
    rule: AveragingRule | None = None,
    keeper: Keeper | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_row: Callable[[list[Row]], None] = lambda _: None,
    start: Snapshot | None = None,
) -> Outcome:
    """Algorithm 1 for k = 1..steps, or until the simulated clock shows `until` seconds."""
    run = _Run(plan, engine, evaluation, keeper or NoKeeper(), rule, steps, until)
    run.begin(start)
    if not run.rows:
        run.evaluate()
        on_row(run.rows)
    interrupted = False
    stop = run.next_stop()
    while not run.finished and not interrupted:
        run.local_updates(stop)
        if plan.schedule.is_intra(run.k):
            run.aggregate()
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
        plan: Plan,
        engine: Engine,
        evaluation: Evaluation,
        keeper: Keeper,
        rule: AveragingRule | None,
        steps: int,
        until: float,
    ) -> None:
        self.plan, self.engine, self.evaluation, self.keeper = plan, engine, evaluation, keeper
        self.rule, self.steps, self.until = rule, steps, until
        self.k = 0
        self._period = -1
        self._present: Mask = np.zeros(0, dtype=bool)
        self.rows: list[Row] = []
        self.client_steps = 0
        self.updates = 0  # iterations since this start
        self.phases = {"local updates": 0.0, "aggregation": 0.0, "evaluation": 0.0, "saving": 0.0}
        self.started = time.perf_counter()
        self.resumed = 0.0
        self.batch_loss = 0.0

    def begin(self, start: Snapshot | None) -> None:
        if start is not None:
            self.k, self.rows = start.iteration, list(start.rows)
            self.plan.clock.at = start.clock_at.copy()
            self.plan.clock.steps = start.clock_steps
            self.batch_loss = start.batch_loss
            self.engine.restore(start.state)
            self.resumed = self.fraction

    @property
    def fraction(self) -> float:
        return min(1.0, max(self.k / self.steps, self.seconds / self.until))

    @property
    def finished(self) -> bool:
        """The clock is looked at only after an aggregation: when else depends on the machine."""
        late = self.k > 0 and self.aggregated and self.seconds >= self.until
        return self.k >= self.steps or late

    @property
    def present(self) -> Mask:
        """Who takes part in the upload period of iteration k (or, at its end, took part)."""
        return self._present_in(self.plan.schedule.period(max(self.k, 1)))

    def _present_in(self, period: int) -> Mask:
        if period != self._period:
            self._period, self._present = period, self.plan.participation.present(period)
        return self._present

    @property
    def seconds(self) -> float:
        return self.plan.clock.seconds(self.present)

    @property
    def aggregated(self) -> bool:
        """Whether every client holds its server's model."""
        return self.plan.schedule.is_intra(self.k)

    def next_stop(self) -> int:
        """The next iteration after which something else than a local update happens.

        The first is the same at every rank; later ones are agreed on, as ranks measure time.
        """
        every = self.evaluation.every
        stop = min(self.plan.schedule.next_intra(self.k), (self.k // every + 1) * every, self.steps)
        spent = self.phases["local updates"]
        done = self.updates
        # The first iteration alone: how long one takes is not known before.
        ahead = max(1, int(RESPONSE * done / spent)) if done else 1
        return min(stop, self.k + ahead)

    def look_up(self) -> tuple[bool, bool, int]:
        """Whether to end here, whether a checkpoint is due, and the next stop; one message."""
        if self.finished:
            return False, False, self.k
        ours = [self.keeper.stop(), self.keeper.due(), self.next_stop()]
        end, due, stop = self.engine.agree(ours)
        return bool(end), bool(due), stop

    def local_updates(self, last: int) -> None:
        """Line 4: every present client updates its model up to iteration `last`."""
        begin = time.perf_counter()
        first, self.k = self.k + 1, last
        present = self._present_in(self.plan.schedule.period(first))
        losses = self.engine.local_updates(first, last, present)
        here = self.engine.clients
        _refuse_non_finite(losses, here[present[here]], first)
        for column in losses.T:
            # Exact sums: where the loop paused must not show in the last bits.
            self.batch_loss += math.fsum(column) / max(int(present.sum()), 1)
        self.plan.clock.local_updates(last - first + 1)
        self.client_steps += int(present.sum()) * (last - first + 1)
        self.updates += last - first + 1
        self.phases["local updates"] += time.perf_counter() - begin

    def aggregate(self) -> None:
        """Lines 5 to 17: intra-cluster, on a multiple of tau1 tau2 inter-cluster, broadcast."""
        begin = time.perf_counter()
        self.engine.intra(self.plan.network.shares.within_present(self.present), self.rule)
        self.plan.clock.upload(self.present)
        if self.plan.schedule.is_inter(self.k):
            self.engine.inter(self.plan.averager)
            self.plan.clock.exchange(self.plan.averager)
        self.engine.broadcast()
        self.phases["aggregation"] += time.perf_counter() - begin

    def mean(self) -> Tensor:
        """u_k: what the servers' weighted mean would be, were all to aggregate now."""
        within = self.plan.network.shares.within_present(self.present)
        return self.engine.mean_model(None if self.aggregated else within)

    def evaluate(self) -> None:
        begin = time.perf_counter()
        mean, servers = self.mean(), self.engine.server_models()
        if not bool(mean.isfinite().all() and servers.isfinite().all()):
            _refuse_non_finite_state(self.engine.state(with_clients=True), self.k)
        row: Row = {"iteration": self.k, "seconds": self.seconds}
        row |= self.evaluation.row(self.engine, mean, servers)
        since = self.k - int(self.rows[-1]["iteration"]) if self.rows else 0
        total = self.engine.total(self.batch_loss)
        row["batch_loss"] = total / since if since else math.nan
        self.batch_loss = 0.0
        self.rows = [*self.rows, row]
        self.phases["evaluation"] += time.perf_counter() - begin

    def save(self) -> None:
        if not self.keeper.keeps:
            return
        begin = time.perf_counter()
        state = self.engine.state(with_clients=not self.aggregated)
        if self.engine.leads:
            _refuse_non_finite_state(state, self.k)
            clock = self.plan.clock
            self.keeper.save(
                Snapshot(self.k, clock.at.copy(), clock.steps, state, self.rows, self.batch_loss)
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
            servers=self.engine.server_models(),
            client_steps=self.client_steps,
            elapsed=time.perf_counter() - self.started,
            interrupted=interrupted,
            phases=self.phases,
        )


def _refuse_non_finite(losses: NDArray[np.float64], clients: NDArray[np.int64], first: int) -> None:
    bad = ~np.isfinite(losses)
    if bad.any():
        column = int(np.flatnonzero(bad.any(axis=0))[0])
        row = int(np.flatnonzero(bad[:, column])[0])
        raise RunError(
            f"the loss of client {clients[row]} became {losses[row, column]} at iteration "
            f"{first + column}; the last good checkpoint is kept. A smaller lr may help, "
            "or look at that client's data."
        )


def _refuse_non_finite_state(state: EngineState, k: int) -> None:
    for what, models in (("server", state.servers), ("client", state.clients)):
        if models is not None and not bool(models.isfinite().all()):
            number = int((~models.isfinite().all(dim=1)).nonzero()[0])
            raise RunError(
                f"the model of {what} {number} is no longer finite at iteration {k}; the last good "
                "checkpoint is kept. A smaller lr may help."
            )
