"""Candidates in training, by the same loop and engines as any run.

What one plan has trained another may look at: a run is trained once, and every look at it sees
what it would see had it trained alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor, nn

from sdfeel.algorithm.codecs import Codec
from sdfeel.algorithm.schedule import Schedule
from sdfeel.errors import DivergedError, InputError
from sdfeel.network import Network
from sdfeel.planner.candidates import Candidate
from sdfeel.planner.owed import owed
from sdfeel.planner.pilot_path import LossCurve, PathPoint
from sdfeel.records.checkpoints import Checkpoint, Row
from sdfeel.simulation.evaluation import Evaluation
from sdfeel.simulation.simulation import Simulation
from sdfeel.theory.constants import Probe
from sdfeel.theory.split import kappa_split

__all__ = ["Place", "Training", "TrainingRun"]

# What falls by powers of k never is 0; a share of errors on some samples may be.
LEAST = 1e-9


class Place(Protocol):
    """Where candidates are trained and measured: a laboratory, as they need it."""

    simulation: Simulation
    network: Network
    engine_name: str
    on_accuracy: bool
    probe: Probe

    def evaluation(self, candidate: Candidate) -> Evaluation: ...


@dataclass
class _Memory:
    """A keeper that holds the last checkpoint: runs go on from where they were."""

    checkpoint: Checkpoint | None = None
    keeps: bool = True

    def stop(self) -> bool:
        return False

    def due(self) -> bool:
        return False

    def save(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    def saw(self, iteration: int, servers: Tensor) -> None:
        pass


class Training:
    """One candidate, from the start to its last stop; an engine is held only while it trains.

    rows      its evaluations
    means     u_k at every stop
    diverged  the stop before which models ceased to be finite; there is none after it
    """

    def __init__(self, place: Place, candidate: Candidate) -> None:
        self.place = place
        self.evaluation = place.evaluation(candidate)
        self.simulation = place.simulation.changed(
            schedule=Schedule(candidate.tau1, candidate.tau2, candidate.alpha),
            averager=candidate.averager,
            codecs=candidate.methods.codecs,
            correction=candidate.methods.correction,
            until=math.inf,
        )
        self.memory = _Memory()
        self.rows: list[Row] = []
        self.means: dict[int, Tensor] = {}
        self.diverged: int | None = None

    @property
    def last(self) -> int:
        return max(self.means, default=0)

    def to(self, stop: int) -> bool:
        """Train until a stop; False if it went by there without one."""
        if stop in self.means:
            return True
        if stop < self.last:
            return False
        if self.diverged is None:
            try:
                self._train(stop)
            except DivergedError:
                self.diverged = stop
            except InputError as refusal:
                if refusal.field != "codecs":  # which cannot send what is not finite
                    raise
                self.diverged = stop
        return self.diverged is None or stop >= self.diverged

    def _train(self, stop: int) -> None:
        choice = self.simulation.engine(self.place.engine_name)
        # With "auto" the first call measures; then all runs take what was fastest.
        self.place.engine_name = choice.engine.name
        try:
            outcome = self.simulation.run(
                choice.engine,
                steps=stop,
                evaluation=self.evaluation,
                keeper=self.memory,
                start=self.memory.checkpoint,
            )
        finally:
            choice.engine.close()
        # A run that goes on forgets the row of its former end; here every stop counts.
        rows = {int(row["iteration"]): row for row in [*self.rows, *outcome.rows]}
        self.rows, self.means[stop] = [rows[k] for k in sorted(rows)], outcome.mean


class TrainingRun:
    """A look at a training: up to its own last stop, whoever trained that far."""

    def __init__(self, place: Place, candidate: Candidate, training: Training) -> None:
        self.place, self.candidate, self.training = place, candidate, training
        self.stops: list[int] = []
        self.advance(candidate.tau1)

    @property
    def simulation(self) -> Simulation:
        return self.training.simulation

    @property
    def curve(self) -> LossCurve:
        every, last = self.training.evaluation.every, self.stops[-1]
        rows = [
            row
            for row in self.training.rows
            if row["iteration"] <= last
            and (row["iteration"] % every == 0 or row["iteration"] in self.stops)
        ]
        iterations = [int(row["iteration"]) for row in rows]
        seconds, losses = [row["seconds"] for row in rows], [self._loss(row) for row in rows]
        if self.diverged:
            iterations.append(last)
            seconds.append(float(self.candidate.cost.seconds(last)))
            losses.append(math.inf)
        return LossCurve(np.array(iterations), np.array(seconds), np.array(losses))

    @property
    def diverged(self) -> bool:
        at = self.training.diverged
        return at is not None and self.stops[-1] >= at

    def _loss(self, row: Row) -> float:
        loss = 1 - row["test_accuracy"] if self.place.on_accuracy else row["train_loss"]
        return max(loss, LEAST)

    def advance(self, iterations: int) -> None:
        """Up to a whole number of upload periods, so that every evaluation has its upload paid."""
        tau1 = self.candidate.tau1
        stop = max(1, -(-iterations // tau1)) * tau1
        if self.stops and (self.stops[-1] >= stop or self.diverged):
            return
        self.stops.append(stop)
        if not self.training.to(stop):  # another went by here: its own, from the start
            self.training = Training(self.place, self.candidate)
            for one in self.stops:
                self.training.to(one)

    def model(self) -> nn.Module:
        problem = self.simulation.problem
        return problem.layout.module(problem.model, self.training.means[self.stops[-1]])

    def measure(self, sent: Mapping[tuple[str, str], Codec]) -> PathPoint:
        """The split of kappa here, and what codecs owe of the gradients."""
        probe, shares = self.place.probe, self.place.network.shares
        probe.load(self.model())
        gradients = probe.client_gradients()
        found = kappa_split(gradients, shares)
        lacking = {key: owed(key[0], codec, gradients, shares) for key, codec in sent.items()}
        loss = float(self.curve.losses[-1])
        return PathPoint(loss, found.inside**0.5, found.between**0.5, lacking)
