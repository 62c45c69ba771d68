"""The planner's laboratory: candidates in training, by the same loop and engines as any run."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from sdfeel.algorithm.methods.codecs import Codec, Draw
from sdfeel.algorithm.methods.corrections import Correction
from sdfeel.algorithm.methods.optimizers import Optimizer
from sdfeel.errors import DivergedError, InputError
from sdfeel.network import Shares
from sdfeel.planner.candidate import Candidate, Place
from sdfeel.planner.pilot import PathPoint
from sdfeel.planner.price import LossCurve
from sdfeel.planner.race import Tell
from sdfeel.records.checkpoints import Checkpoint, Row
from sdfeel.simulation.evaluation import Evaluation, accuracy, subset
from sdfeel.simulation.listening import Listener, NoKeeper, Progress
from sdfeel.simulation.simulation import Simulation
from sdfeel.theory.constants import MeasuredConstants, Probe, measure
from sdfeel.theory.split import kappa_split

__all__ = ["Training", "TrainingLaboratory", "measured_constants", "owed"]

# Samples on which a race's training loss is taken: enough to tell candidates apart, and quick.
RACE_SAMPLES = 2000
EVALUATE_EVERY = 10
# What falls by powers of k never is 0; a share of errors on some samples may be.
LEAST = 1e-9
# A training that lasts says how far it is every so many real seconds.
LINE_EVERY = 5.0
# Messages sent one after the other: what error feedback owes has settled by then.
MESSAGES = 8


class TrainingLaboratory:
    """Trains candidates in the setting of a simulation: its model, data, loss, methods and clock.

    A candidate is trained once, whichever plans ask for it.

    Args:
        simulation: what a candidate does not say of itself.
        on_accuracy: whether 1 - test accuracy is the loss.
        tell: called with a line every few seconds while a candidate trains.

    Raises:
        InputError: the planner cannot plan for this simulation.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        on_accuracy: bool = False,
        tell: Tell = lambda _: None,
    ) -> None:
        _check_plannable(simulation)
        self.simulation, self.on_accuracy, self.tell = simulation, on_accuracy, tell
        self.place = Place.of(simulation)
        # With "auto" the first run of an optimizer measures; then all take what was fastest.
        self.engines: dict[Optimizer, str] = {}
        self._trainings: dict[tuple[Any, ...], Training] = {}
        self._looks: dict[Candidate, _Look] = {}
        problem = simulation.problem
        self.probe = Probe(
            problem.model, problem.data, simulation.network, samples=100, seed=problem.seed,
            loss=problem.loss,
        )  # fmt: skip

    def advance(self, row: Candidate, iterations: int) -> None:
        """Train a candidate up to a whole number of upload periods, so that every evaluation has
        its upload paid; what was trained of an equal one before is not trained again.
        """
        if row not in self._looks:
            if row.key not in self._trainings:
                self._trainings[row.key] = Training(self, row)
            self._looks[row] = _Look(self._trainings[row.key])
            self._looks[row].advance(row.tau1)
        self._looks[row].advance(max(1, -(-iterations // row.tau1)) * row.tau1)
        row.curve = self._looks[row].curve(row)

    def model(self, row: Candidate) -> nn.Module:
        """The mean model of a candidate where it has advanced to."""
        problem, look = self.simulation.problem, self._looks[row]
        return problem.layout.module(problem.model, look.training.ends[look.stops[-1]][1])

    def measure(self, row: Candidate, sent: Mapping[str, Codec]) -> PathPoint:
        """Measure the split of kappa there, and what codecs owe of the gradients."""
        shares = self.simulation.network.shares
        self.probe.load(self.model(row))
        gradients = self.probe.client_gradients()
        split = kappa_split(gradients, shares)
        ways = {name: name.rsplit(" ", 1)[1] for name in sent}
        lacking = {name: owed(ways[name], sent[name], gradients, shares) for name in sent}
        loss = float(row.curve.losses[-1])
        return PathPoint(loss, split.inside**0.5, split.between**0.5, lacking)

    def evaluation(self, row: Candidate) -> Evaluation:
        """The loss on part of the training data, or the accuracy on the test data."""
        periods = -(-EVALUATE_EVERY // row.tau1)
        data, test = self.simulation.problem.data, self.simulation.evaluation.test
        if self.on_accuracy and test is None:
            raise InputError("target-accuracy", None, "needs data to test on")
        return Evaluation(
            every=row.tau1 * periods,
            train=None if self.on_accuracy else subset(data.stored(slice(None)), RACE_SAMPLES),
            test=subset(test, RACE_SAMPLES) if self.on_accuracy and test is not None else None,
            metrics={"accuracy": accuracy} if self.on_accuracy else {},
            servers=False,
        )


def _check_plannable(simulation: Simulation) -> None:
    scheme, pace = simulation.algorithm.scheme, simulation.algorithm.pace
    if (scheme.servers, scheme.averager) != ("edge", None):
        remedy = (
            "has no servers that agree among themselves: the planner chooses tau1, tau2, alpha and "
            "an averager for sd-feel and schemes like it"
        )
        raise InputError("scheme", scheme.name, remedy)
    if "rounds" in pace.breaks:
        remedy = "candidates go in rounds first: leave it out, and the planner tries other paces"
        raise InputError("pace", type(pace).__name__, remedy)
    correction = simulation.settings.correction
    if not isinstance(correction, Correction | None):
        remedy = "plans choose among those of the table: pass a method of your own in methods="
        raise InputError("correction", correction, remedy)
    if simulation.network.changes:
        raise InputError("network", str(simulation.network), "the planner plans for one graph")


class _Progress(Listener):
    """Says how far a training is, if it lasts."""

    def __init__(self, tell: Tell) -> None:
        self.tell, self.last = tell, time.monotonic()

    def on_period(self, progress: Progress) -> None:
        if time.monotonic() - self.last >= LINE_EVERY:
            self.last = time.monotonic()
            self.tell(f"    {progress.iteration} of {progress.iterations} iterations")


class _Memory(NoKeeper):
    """Holds the last checkpoint, so that a run goes on from where it was."""

    keeps = True
    checkpoint: Checkpoint | None = None

    def save(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint


@dataclass(eq=False)
class Training:
    """One candidate, from the start to its last stop; an engine is held only while it trains.

    rows      its regular evaluations
    ends      by stop, the evaluation and u_k there
    diverged  the stop before which models ceased to be finite; there is none after it
    """

    laboratory: TrainingLaboratory
    row: Candidate
    rows: list[Row] = field(default_factory=list)
    ends: dict[int, tuple[Row, Tensor]] = field(default_factory=dict)
    diverged: int | None = None

    def __post_init__(self) -> None:
        self.evaluation = self.laboratory.evaluation(self.row)
        with warnings.catch_warnings():  # what may surprise is said of the choice, where it trains
            warnings.simplefilter("ignore", UserWarning)
            settings = {**self.row.settings, "until": math.inf}
            self.simulation = self.laboratory.simulation.changed(**settings)
        self.memory = _Memory()

    def has_trained_to(self, stop: int) -> bool:
        """Train until a stop; False if another look went by there without stopping."""
        if stop in self.ends:
            return True
        if stop < max(self.ends, default=0):
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
        engines, optimizer = self.laboratory.engines, self.row.optimizer
        choice = self.simulation.engine(engines.get(optimizer))
        engines[optimizer] = choice.engine.name
        try:
            run = self.simulation.run(
                choice.engine,
                steps=stop,
                evaluation=self.evaluation,
                keeper=self.memory,
                listener=_Progress(self.laboratory.tell),
                start=self.memory.checkpoint,
            )
        finally:
            choice.engine.close()
        # A checkpoint is without the row that is there only because the run was stopped.
        self.rows = self.memory.checkpoint.rows if self.memory.checkpoint else []
        self.ends[stop] = run.history.rows[-1], run.state.mean()


@dataclass
class _Look:
    """A look at a training up to its own last stop, as if nothing else had trained it."""

    training: Training
    stops: list[int] = field(default_factory=list)

    def advance(self, stop: int) -> None:
        if self.stops and (self.stops[-1] >= stop or self._has_diverged):
            return
        self.stops.append(stop)
        if not self.training.has_trained_to(stop):  # then by itself, from the start
            self.training = Training(self.training.laboratory, self.training.row)
            for each in self.stops:
                self.training.has_trained_to(each)

    @property
    def _has_diverged(self) -> bool:
        at = self.training.diverged
        return at is not None and self.stops[-1] >= at

    def curve(self, candidate: Candidate) -> LossCurve:
        ends = [self.training.ends[stop][0] for stop in self.stops if stop in self.training.ends]
        last = ends[-1]["iteration"] if ends else 0
        regular = [row for row in self.training.rows if row["iteration"] <= last]
        by_iteration = {int(row["iteration"]): row for row in [*regular, *ends]}
        iterations = sorted(by_iteration)
        seconds = [by_iteration[k]["seconds"] for k in iterations]
        losses = [self._loss(by_iteration[k]) for k in iterations]
        if self._has_diverged:
            iterations.append(self.stops[-1])
            seconds.append(float(candidate.price.seconds_of(self.stops[-1])))
            losses.append(math.inf)
        return LossCurve(np.array(iterations), np.array(seconds), np.array(losses))

    def _loss(self, row: Row) -> float:
        on_accuracy = self.training.laboratory.on_accuracy
        return max(1 - row["test_accuracy"] if on_accuracy else row["train_loss"], LEAST)


def owed(way: str, codec: Codec, gradients: NDArray[np.float64], shares: Shares) -> float:
    """The norm of what does not arrive, where every message carries one more of these gradients.

    Up, a codec without memory loses what it rounds off, and one with error feedback owes it: what
    counts is the weighted mean over the clients, in which errors at random cancel. On the other
    ways a message is the difference to what the receivers hold, so that all of it is owed, and
    every cluster suffers its own.

    Args:
        way: up, down or between.
        gradients: of every client, one row each; servers send the means of their clusters.
    """
    is_up = way == "up"
    values: NDArray[np.floating[Any]] = gradients if is_up else shares.V.T @ gradients
    values = values.astype(np.float32)
    remembers = codec.feeds_back or not is_up
    weights = (shares.client if is_up else shares.cluster).astype(np.float32)
    lacking, squares = np.zeros_like(values), []
    for k in range(MESSAGES if remembers else 1):
        due = values + lacking if remembers else values
        lacking = due - codec.through(way, due.copy(), Draw(0, np.arange(len(due)), k))
        mean = np.square(weights @ lacking).sum()
        squares.append(mean if is_up else (weights * np.square(lacking).sum(axis=1)).sum())
    return float(np.sqrt(np.mean(squares)))


def measured_constants(
    simulation: Simulation,
    *,
    visits: int = 4,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> MeasuredConstants:
    """Measure the constants of Theorem 1 along a short run of a simulation's own schedule.

    At the start and at `visits - 1` models on the way to its last step.
    """
    if visits < 1:
        raise InputError("visits", visits, "at least one model")
    laboratory = TrainingLaboratory(simulation)
    problem, steps = simulation.problem, simulation.settings.steps
    models = [problem.model]
    if visits > 1:
        row = laboratory.place.candidate()
        for number in range(1, visits):
            progress(0, 1, f"training to iteration {steps * number // (visits - 1)}")
            laboratory.advance(row, steps * number // (visits - 1))
            models.append(laboratory.model(row))
    return measure(
        models,
        problem.data,
        simulation.network,
        batch_size=problem.batch_size,
        seed=problem.seed,
        progress=progress,
    )
