"""The planner's laboratory: candidates are trained by the same loop and engines as any run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from sdfeel.algorithm.codecs import Codec
from sdfeel.algorithm.pace import TurnPace
from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import SCHEMES, Algorithm
from sdfeel.clock import Latencies
from sdfeel.errors import InputError
from sdfeel.network import Averager, Network
from sdfeel.planner.candidates import Assemble, Candidate, cost
from sdfeel.planner.methods import PLANNED_CODECS, PLANNED_CORRECTIONS, Methods, methods_of
from sdfeel.planner.owed import owed
from sdfeel.planner.pilot_path import LossCurve, PathPoint
from sdfeel.records.checkpoints import Checkpoint
from sdfeel.simulation.evaluation import Evaluation, accuracy, subset
from sdfeel.simulation.loop import Outcome
from sdfeel.simulation.simulation import Simulation
from sdfeel.theory.constants import MeasuredConstants, Probe, measure
from sdfeel.theory.split import kappa_split

__all__ = ["TrainingLaboratory", "measured_constants"]

# Samples on which a race's training loss is taken: enough to tell candidates apart, and quick.
RACE_SAMPLES = 2000
EVALUATE_EVERY = 10


class TrainingLaboratory:
    """Trains candidates in the setting of a simulation: its model, data, loss, rules and clock.

    on_accuracy  whether 1 - test accuracy is the loss
    """

    def __init__(self, simulation: Simulation, *, on_accuracy: bool = False) -> None:
        name = simulation.algorithm.scheme
        if name in SCHEMES and (SCHEMES[name].servers, SCHEMES[name].averager) != ("edge", None):
            raise InputError(
                "scheme",
                name,
                "has no servers that agree among themselves: the planner chooses tau1, tau2, alpha "
                "and an averager for sd-feel and schemes like it",
            )
        if isinstance(simulation.algorithm.pace, TurnPace):
            pace = type(simulation.algorithm.pace).__name__
            raise InputError("pace", pace, "the planner goes in rounds: synchronous")
        self.simulation = simulation
        self.on_accuracy = on_accuracy
        self.lr = simulation.algorithm.rate(1)
        self.engine_name = simulation.settings.engine
        self.network: Network = simulation.network
        problem = simulation.problem
        self.probe = Probe(
            problem.model, problem.data, self.network, samples=100, seed=problem.seed,
            loss=problem.loss,
        )  # fmt: skip

    @property
    def latencies(self) -> Latencies:
        return self.simulation.algorithm.uplink.latencies

    def start(self, candidate: Candidate) -> _TrainingRun:
        return _TrainingRun(self, candidate)

    @property
    def own(self) -> Methods:
        """What the simulation has set."""
        settings = self.simulation.settings
        return Methods(**settings.codecs, correction=settings.correction)

    def methods(
        self,
        codecs: Mapping[str, Sequence[str]] | None = None,
        corrections: Sequence[str] | None = None,
    ) -> list[Methods]:
        """What to choose from: as named; else what the simulation has set; else what is usual.

        Down only where a profile has a rate for it, and between servers only if there are several.
        """
        codecs, own = codecs or {}, self.simulation.settings
        counted = {"up": True, "down": self.latencies.from_server is not None}
        counted["between"] = self.network.servers > 1
        offered: dict[str, Sequence[str | Codec]] = {}
        for way, codec in own.codecs.items():
            usual = PLANNED_CODECS[way] if counted[way] else ("float32",)
            offered[way] = codecs.get(way) or ((codec,) if not codec.exact else usual)
        if corrections is None and own.correction is not None:
            return methods_of(offered, (own.correction,))
        return methods_of(offered, corrections or PLANNED_CORRECTIONS)

    def assembling(self, network: Network | None = None) -> Assemble:
        """What methods come to, here or on another network of the same clients."""
        own, profile = self.simulation.settings, self.simulation.profile
        parameters = self.simulation.problem.layout.parameters

        def assemble(schedule: Schedule, averager: Averager, methods: Methods) -> Algorithm:
            update = {"schedule": schedule, "averager": averager, "codecs": methods.codecs}
            changed = own.model_copy(update=update | {"correction": methods.correction})
            return changed.algorithm(network or self.simulation.network, profile, parameters)

        return assemble

    def evaluation(self, candidate: Candidate) -> Evaluation:
        """The loss on part of the training data, or the accuracy on the test data."""
        periods = -(-EVALUATE_EVERY // candidate.tau1)
        data, test = self.simulation.problem.data, self.simulation.evaluation.test
        if self.on_accuracy and test is None:
            raise InputError("target-accuracy", None, "needs data to test on")
        return Evaluation(
            every=candidate.tau1 * periods,
            train=None if self.on_accuracy else subset((data.inputs, data.targets), RACE_SAMPLES),
            test=subset(test, RACE_SAMPLES) if self.on_accuracy and test is not None else None,
            metrics={"accuracy": accuracy} if self.on_accuracy else {},
            servers=False,
        )


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


class _TrainingRun:
    """One candidate; an engine is held only while it trains."""

    def __init__(self, laboratory: TrainingLaboratory, candidate: Candidate) -> None:
        self.laboratory = laboratory
        self.candidate = candidate
        schedule = Schedule(candidate.tau1, candidate.tau2, candidate.alpha)
        self.simulation = laboratory.simulation.changed(
            schedule=schedule,
            averager=candidate.averager,
            codecs=candidate.methods.codecs,
            correction=candidate.methods.correction,
            until=math.inf,
        )
        self.memory = _Memory()
        self.outcome: Outcome | None = None
        self.advance(candidate.tau1)

    @property
    def curve(self) -> LossCurve:
        assert self.outcome is not None  # noqa: S101 - set by the first advance
        rows = self.outcome.rows
        return LossCurve(
            np.array([int(row["iteration"]) for row in rows]),
            np.array([row["seconds"] for row in rows]),
            np.array([self._loss(row) for row in rows]),
        )

    def _loss(self, row: dict[str, float]) -> float:
        return 1 - row["test_accuracy"] if self.laboratory.on_accuracy else row["train_loss"]

    def advance(self, iterations: int) -> None:
        """Up to a whole number of upload periods, so that every evaluation has its upload paid."""
        tau1 = self.candidate.tau1
        steps = max(1, -(-iterations // tau1)) * tau1
        if self.outcome is not None and self.outcome.iteration >= steps:
            return
        choice = self.simulation.engine(self.laboratory.engine_name)
        # With "auto" the first call measures; then all runs take what was fastest.
        self.laboratory.engine_name = choice.engine.name
        try:
            self.outcome = self.simulation.run(
                choice.engine,
                steps=steps,
                evaluation=self.laboratory.evaluation(self.candidate),
                keeper=self.memory,
                start=self.memory.checkpoint,
            )
        finally:
            choice.engine.close()

    def model(self) -> nn.Module:
        assert self.outcome is not None  # noqa: S101
        problem = self.simulation.problem
        return problem.layout.module(problem.model, self.outcome.mean)

    def measure(self, sent: Mapping[tuple[str, str], Codec]) -> PathPoint:
        probe, shares = self.laboratory.probe, self.laboratory.network.shares
        probe.load(self.model())
        gradients = probe.client_gradients()
        found = kappa_split(gradients, shares)
        lacking = {key: owed(key[0], codec, gradients, shares) for key, codec in sent.items()}
        loss = float(self.curve.losses[-1])
        return PathPoint(loss, found.inside**0.5, found.between**0.5, lacking)


def measured_constants(
    simulation: Simulation,
    *,
    visits: int = 4,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> MeasuredConstants:
    """The constants of Theorem 1 along a short run of a simulation's own schedule.

    MeasuredConstants at the start and at `visits - 1` models on the way to its last step.
    """
    if visits < 1:
        raise InputError("visits", visits, "at least one model")
    laboratory = TrainingLaboratory(simulation)
    problem, steps = simulation.problem, simulation.settings.steps
    models = [problem.model]
    if visits > 1:
        schedule, averager = simulation.algorithm.schedule, simulation.algorithm.averager
        tau1, tau2, alpha = schedule.tau1, schedule.tau2, schedule.alpha
        price = cost(laboratory.network, laboratory.latencies, tau1, tau2, averager)
        run = laboratory.start(Candidate(tau1, tau2, alpha, averager, price, laboratory.own))
        for number in range(1, visits):
            progress(0, 1, f"training to iteration {steps * number // (visits - 1)}")
            run.advance(steps * number // (visits - 1))
            models.append(run.model())
    return measure(
        models,
        problem.data,
        laboratory.network,
        batch_size=problem.batch_size,
        seed=problem.seed,
        progress=progress,
    )
