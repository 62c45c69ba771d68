"""A run is a fold over the stream of events: Algorithm 1 and all its relatives.

Evaluation, checkpoints and the end of a run happen where events end, nowhere else. A row of the
history stands at the first event at or after its iteration.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from sdfeel.algorithm.events import Event, windows
from sdfeel.engines.engine import Engine, Interrupted
from sdfeel.records.checkpoints import Checkpoint, Row
from sdfeel.simulation.evaluation import Evaluation
from sdfeel.simulation.history import History, refuse_bad_losses, refuse_bad_models
from sdfeel.simulation.listening import Keeper, Listener, NoKeeper, Progress
from sdfeel.simulation.state import State
from sdfeel.simulation.training import Trained


@dataclass
class Run:
    """The variables of a run, and its loop.

    k, seconds      where it is: the iteration of the slowest group, and the simulated clock
    events          how many are done; client_steps: local updates since this start
    elapsed         real seconds that it took in the end; phases: what they went into
    is_interrupted  by a signal; is_stopped: by a callback, before the last iteration
    """

    state: State
    engine: Engine
    evaluation: Evaluation
    steps: int
    until: float = math.inf
    keeper: Keeper = field(default_factory=NoKeeper)
    listener: Listener = field(default_factory=Listener)

    def __post_init__(self) -> None:
        self.algorithm, self.ranks = self.state.algorithm, self.state.ranks
        self.history = History(self.evaluation.every)
        self.k, self.seconds, self.events, self.idle_share = 0, 0.0, 0, 0.0
        self.client_steps, self.began, self.elapsed = 0, time.perf_counter(), 0.0
        self.resumed = 0.0  # the fraction that was done before
        self.is_interrupted = self.is_stopped = False
        self._evaluated = -1  # the number of events at the last evaluation
        self.phases = {"local updates": 0.0, "aggregation": 0.0, "evaluation": 0.0, "saving": 0.0}

    def carry_out(self, start: Checkpoint | None = None) -> None:
        """Algorithm 1 from the beginning, or from a checkpoint."""
        self._begin(start)
        stream = islice(self.algorithm.events(self.steps), self.events, None)
        # Ranks stop together or not at all, so none of them looks up while it trains.
        is_stopped = self.keeper.stop if self.ranks.size == 1 else lambda: False
        is_short = False
        for window in windows(stream, self._is_due) if not self.is_over else ():
            is_short = window[0].is_short
            if is_short:  # a longer run has a longer period here
                self._save()
            try:
                with self._timed("local updates"):
                    trained = self.state.train(window, self.engine, is_stopped)  # eq. (2)
            except Interrupted:  # before that was done: nothing of it counts
                self.is_interrupted = True
                break
            for event in window:
                with self._timed("aggregation"):
                    self.state.take(event, trained)  # eq. (3)
                    self.state.mix(event)  # eq. (5)
                    self.state.begin(event)  # eq. (4)
            self._count(window, trained)
            self._look_back(is_due=self._is_due(window[-1]))
            if self.is_over or self.is_interrupted:
                break
        if not is_short:
            self._save()
        self.elapsed = time.perf_counter() - self.began

    @property
    def is_over(self) -> bool:
        """Whether the last iteration is made, or the time is over."""
        return self.k >= self.steps or self.seconds >= self.until or self.is_stopped

    def _is_due(self, event: Event) -> bool:
        """Return whether there is a row after this event."""
        ends = event.k >= self.steps or event.ends >= self.until
        return ends or self.history.is_due(event.k)

    def _begin(self, start: Checkpoint | None) -> None:
        if start is not None:
            self.k, self.seconds, self.events = start.iteration, start.seconds, start.events
            self.idle_share = start.idle_share
            self.history.restore(start)
            self.state.restore(start.tensors)
            self.engine.recall(start.tensors)
            self.resumed = self._fraction
        rows = self.history.rows
        if not rows or (self.is_over and int(rows[-1]["iteration"]) != self.k):
            self._evaluate()

    def _count(self, window: Sequence[Event], trained: Trained) -> None:
        """Count what has happened: iterations, seconds and losses."""
        here = self.state.rows_of_groups
        self.client_steps += self.history.count(window, trained, here)
        if self.engine.tells_losses:
            refuse_bad_losses(trained, window, here, self.keeper.rescue)
        self.k, self.events = window[-1].k, self.events + len(window)
        self.seconds, self.idle_share = window[-1].ends, window[-1].idle_share

    def _look_back(self, is_due: bool) -> None:
        """Evaluate, tell those who listen, and save, each where it is time; ranks agree on it."""
        if is_due:
            self._evaluate()
        self.listener.on_period(self._progress())
        wishes = [self.keeper.stop(), self.keeper.due(), self.listener.wants_end]
        is_interrupted, is_time, wants_end = self.ranks.agree(wishes)
        if wants_end and not self.is_over:
            self.is_stopped = True
            if self._evaluated != self.events:
                self._evaluate()
        self.is_interrupted = bool(is_interrupted) and not self.is_over
        if is_time and not self.is_over and not self.is_interrupted:
            self._save()

    def _evaluate(self) -> None:
        history = self.history
        with self._timed("evaluation"):
            mean, servers = self.state.mean(), self.state.all_servers()
            if not bool(mean.isfinite().all() and servers.isfinite().all()):
                refuse_bad_models(self.state.save(), self.k, self.keeper.rescue)
            row: Row = {"iteration": self.k, "seconds": self.seconds}
            numbers = self.evaluation.of_servers(self.engine, self.state, servers)
            row |= self.evaluation.row(self.engine, self.state, mean, servers, numbers)
            total = self.ranks.total(history.batch_loss)
            row["batch_loss"] = total / history.batch_count if history.batch_count else math.nan
            row["idle_share"] = self.idle_share
            history.add(row)
            self._evaluated = self.events
            self.keeper.saw(self.k, servers, numbers)
        self.listener.on_row(history.rows, mean, servers)
        if history.is_regular:
            history.begin_anew()

    def _save(self) -> None:
        if not self.keeper.keeps:
            return
        with self._timed("saving"):
            tensors = self.state.save()
            if not self.ranks.leads:
                return
            refuse_bad_models(tensors, self.k, self.keeper.rescue)
            self.keeper.save(
                Checkpoint(
                    iteration=self.k,
                    events=self.events,
                    seconds=self.seconds,
                    tensors=tensors | self.engine.remember(),
                    idle_share=self.idle_share,
                    **self.history.saved(is_now=self._evaluated == self.events),
                )
            )

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.phases[phase] += time.perf_counter() - begin

    @property
    def _fraction(self) -> float:
        return min(1.0, max(self.k / self.steps, self.seconds / self.until))

    def _progress(self) -> Progress:
        return Progress(
            iteration=self.k,
            iterations=self.steps,
            seconds=self.seconds,
            client_steps=self.client_steps,
            elapsed=time.perf_counter() - self.began,
            fraction=self._fraction,
            row=self.history.rows[-1],
            resumed=self.resumed,
        )
