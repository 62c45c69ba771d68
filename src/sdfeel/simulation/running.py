"""What all runs have, whoever waits for whom: where they are, how they are evaluated and saved."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.local import Rows
from sdfeel.errors import DivergedError
from sdfeel.records.checkpoints import Checkpoint, Row
from sdfeel.simulation.engines.engine import Engine
from sdfeel.simulation.evaluation import Evaluation
from sdfeel.simulation.ranks import Ranks

__all__ = ["Keeper", "Means", "NoKeeper", "Outcome", "Progress", "Run", "refuse_non_finite_state"]


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
    stopped: bool = False  # by a callback, before the last iteration
    phases: dict[str, float] = field(default_factory=dict)  # real seconds by what they went into


class Keeper(Protocol):
    """Who decides when to stop or to save, and where to."""

    def stop(self) -> bool:
        """Whether the run should end now, after a last save."""

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint. Called only where `stop` or `due` said so, and at the end."""

    def saw(self, iteration: int, servers: Tensor) -> None:
        """The servers' models at an evaluation."""

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

    def saw(self, iteration: int, servers: Tensor) -> None:
        pass


@dataclass(frozen=True)
class Means:
    """Who trains, looks and keeps, and until when."""

    engine: Engine
    evaluation: Evaluation
    keeper: Keeper
    steps: int
    until: float


class Run(ABC):
    """The variables of the loop, and its lines."""

    def __init__(self, algorithm: Algorithm, means: Means) -> None:
        self.engine, self.evaluation, self.keeper = means.engine, means.evaluation, means.keeper
        self.algorithm, self.steps, self.until = algorithm, means.steps, means.until
        self.rows: list[Row] = []
        self.client_steps = 0
        self.phases = {"local updates": 0.0, "aggregation": 0.0, "evaluation": 0.0, "saving": 0.0}
        self.started = time.perf_counter()
        self.resumed = 0.0
        self.batch_loss = 0.0
        self._asked = False
        self.stopped = False

    k: int  # the iteration

    @property
    @abstractmethod
    def ranks(self) -> Ranks:
        """The processes of the run."""

    @abstractmethod
    def begin(self, start: Checkpoint | None) -> None:
        """From the start, or where a checkpoint was taken."""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """What the simulated clock shows."""

    @property
    @abstractmethod
    def idle_share(self) -> float:
        """The share of time that servers have waited for other clusters."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the last iteration is made, or the time is over."""

    @property
    @abstractmethod
    def aggregated(self) -> bool:
        """Whether a server has just taken what its clients trained, or has yet to begin."""

    @property
    @abstractmethod
    def evaluates(self) -> bool:
        """Whether it is time for an evaluation."""

    @property
    @abstractmethod
    def evaluated(self) -> bool:
        """Whether the last evaluation was of the models as they are."""

    @abstractmethod
    def next_stop(self) -> int:
        """Up to where to train next."""

    @abstractmethod
    def local_updates(self, last: int) -> bool:
        """Clients train; False if a signal came before that was done."""

    @abstractmethod
    def exchange(self) -> None:
        """Servers take what their clients trained, and exchange models where it is time."""

    @abstractmethod
    def mean(self) -> Tensor:
        """u_k: the weighted mean of the servers' models."""

    @abstractmethod
    def servers(self) -> Tensor:
        """The models of all servers, at the leading process."""

    @abstractmethod
    def row(self, mean: Tensor, servers: Tensor) -> Row:
        """The numbers of an evaluation of these models."""

    @abstractmethod
    def mean_batch_loss(self) -> float:
        """Of the mini-batches since the last evaluation; it begins anew."""

    @abstractmethod
    def state(self) -> Rows:
        """All that is to be saved of models and memories."""

    @abstractmethod
    def checkpoint(self, saved: Rows) -> Checkpoint:
        """What `begin` needs."""

    def heard(self, answer: object) -> None:
        """A callback that says True wants the run to end."""
        self._asked |= answer is True

    @property
    def fraction(self) -> float:
        return min(1.0, max(self.k / self.steps, self.seconds / self.until))

    @property
    def rescued(self) -> str:
        """What is left of a run that cannot go on."""
        nothing = isinstance(self.keeper, NoKeeper)
        return "" if nothing else "; the last good checkpoint is kept"

    def look_up(self) -> tuple[bool, bool, int]:
        """Whether to end here, whether a checkpoint is due, and the next stop; one message."""
        if self.finished:
            return False, False, self.k
        wish = self._asked and self.k > 0
        ours = [self.keeper.stop(), self.keeper.due(), self.next_stop(), wish]
        end, due, stop, asked = self.ranks.agree(ours)
        self.stopped = bool(asked) and not end
        return bool(end), bool(due), stop

    def evaluate(self) -> None:
        begin = time.perf_counter()
        mean, servers = self.mean(), self.servers()
        if not bool(mean.isfinite().all() and servers.isfinite().all()):
            refuse_non_finite_state(self.state(), self.k, self.rescued)
        row: Row = {"iteration": self.k, "seconds": self.seconds}
        row |= self.row(mean, servers)
        row["batch_loss"] = self.mean_batch_loss()
        row["idle_share"] = self.idle_share
        # By turns a run may end while its slowest group stands still: that row is the newer one.
        older = self.rows[:-1] if self.rows and self.rows[-1]["iteration"] == self.k else self.rows
        self.rows = [*older, row]
        self.keeper.saw(self.k, servers)
        self.phases["evaluation"] += time.perf_counter() - begin

    def save(self) -> None:
        if not self.keeper.keeps:
            return
        begin = time.perf_counter()
        saved = self.state()
        if self.ranks.leads:
            refuse_non_finite_state(saved, self.k, self.rescued)
            self.keeper.save(self.checkpoint(saved | self.engine.remember()))
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
            servers=self.servers(),
            client_steps=self.client_steps,
            elapsed=time.perf_counter() - self.started,
            interrupted=interrupted,
            stopped=self.stopped,
            phases=self.phases,
        )


def refuse_non_finite_state(saved: Rows, k: int, rescued: str) -> None:
    for name, rows in saved.items():
        if not bool(rows.isfinite().all()):
            number = int((~rows.isfinite().all(dim=1)).nonzero()[0])
            raise DivergedError(
                f"{name} {number} is no longer finite at iteration {k}{rescued}. "
                "A smaller lr may help."
            )
