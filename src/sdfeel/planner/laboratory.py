"""The planner's laboratory: candidates are trained by the same loop and engines as any run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import Plan, plan_scheme
from sdfeel.clock import Latencies, LatencyProfile, load_profile
from sdfeel.data import ClientData, load
from sdfeel.errors import InputError
from sdfeel.experiments.config import RunConfig
from sdfeel.experiments.run import build_model, build_network, client_data
from sdfeel.models import count_flops
from sdfeel.planner.candidates import Candidate, cost
from sdfeel.planner.prediction import Curve, PathPoint
from sdfeel.simulation.engines.choose import build_engine
from sdfeel.simulation.engines.engine import Engine, Problem
from sdfeel.simulation.evaluation import Evaluation, Samples, accuracy, subset
from sdfeel.simulation.loop import Outcome, Snapshot, run_loop
from sdfeel.simulation.ranks import Ranks, place
from sdfeel.simulation.setup import check_device, make_problem
from sdfeel.theory.constants import Measured, Probe, measure
from sdfeel.theory.split import kappa_split

__all__ = ["TrainingLaboratory", "measured_constants"]

# Samples on which a race's training loss is taken: enough to tell candidates apart, and quick.
RACE_SAMPLES = 2000
EVALUATE_EVERY = 10


class TrainingLaboratory:
    """Trains candidates in the setting of a config; `accuracy` makes 1 - test accuracy the loss."""

    def __init__(self, config: RunConfig, *, on_accuracy: bool = False) -> None:
        self.config = config
        self.on_accuracy = on_accuracy
        self.lr = config.lr
        self.engine_name = config.engine
        dataset = load(config.data.name)
        network = build_network(config.network)
        data = client_data(config, dataset, network.clients)
        model = build_model(config, dataset)
        self.network = network.with_samples(data.samples)
        self.profile = _profile(config, model, data)
        self.problem = make_problem(
            model, data, self.network, loss=F.cross_entropy, lr=config.lr,
            batch_size=config.batch_size, seed=config.seed, device=check_device(config.device),
        )  # fmt: skip
        layout = self.problem.layout
        self.start_vector = layout.vector(self.problem.model).clone()
        self.probe = Probe(model, data, self.network, samples=100, seed=config.seed)
        self.test: Samples = (
            dataset.test_inputs.to(layout.dtype),
            dataset.test_targets,
        )

    @property
    def latencies(self) -> Latencies:
        parameters = self.problem.layout.parameters
        return self.profile.latencies(parameters, self.network.clients, self.network.servers)

    def engine(self, problem: Problem) -> Engine:
        """With "auto" the first call measures; then all runs take what was fastest."""
        ranks = Ranks(0, 1)
        placement = place(problem.network.clusters, 1)
        engine = build_engine(self.engine_name, problem, self.start_vector, ranks, placement).engine
        self.engine_name = engine.name
        return engine

    def start(self, candidate: Candidate) -> _TrainingRun:
        return _TrainingRun(self, candidate)

    def evaluation(self, candidate: Candidate) -> Evaluation:
        """The loss on part of the training data, or the accuracy on the test data."""
        periods = -(-EVALUATE_EVERY // candidate.tau1)
        data = self.problem.data
        return Evaluation(
            every=candidate.tau1 * periods,
            train=None if self.on_accuracy else subset((data.inputs, data.targets), RACE_SAMPLES),
            test=subset(self.test, RACE_SAMPLES) if self.on_accuracy else None,
            metrics={"accuracy": accuracy} if self.on_accuracy else {},
            servers=False,
        )

    def plan(self, candidate: Candidate) -> Plan:
        return plan_scheme(
            "sd-feel",
            self.network,
            Schedule(candidate.tau1, candidate.tau2, candidate.alpha),
            profile=self.profile,
            parameters=self.problem.layout.parameters,
            averager=candidate.averager.name,
            participation=self.config.schedule.participation,
            seed=self.config.seed,
        )


@dataclass
class _Memory:
    """A keeper that holds the last snapshot: runs go on from where they were."""

    snapshot: Snapshot | None = None
    keeps: bool = True

    def stop(self) -> bool:
        return False

    def due(self) -> bool:
        return False

    def save(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot


class _TrainingRun:
    """One candidate; an engine is held only while it trains."""

    def __init__(self, laboratory: TrainingLaboratory, candidate: Candidate) -> None:
        self.laboratory = laboratory
        self.candidate = candidate
        self.plan = laboratory.plan(candidate)
        self.memory = _Memory()
        self.outcome: Outcome | None = None
        self.advance(candidate.tau1)

    @property
    def curve(self) -> Curve:
        assert self.outcome is not None  # noqa: S101 - set by the first advance
        rows = self.outcome.rows
        return Curve(
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
        problem = Problem(**{**vars(self.laboratory.problem), "network": self.plan.network})
        engine = self.laboratory.engine(problem)
        try:
            self.outcome = run_loop(
                self.plan,
                engine,
                self.laboratory.evaluation(self.candidate),
                steps=steps,
                keeper=self.memory,
                start=self.memory.snapshot,
            )
        finally:
            engine.close()

    def model(self) -> nn.Module:
        assert self.outcome is not None  # noqa: S101
        problem = self.laboratory.problem
        return problem.layout.module(problem.model, self.outcome.mean)

    def measure(self) -> PathPoint:
        probe = self.laboratory.probe
        probe.load(self.model())
        found = kappa_split(probe.client_gradients(), self.laboratory.network.shares)
        loss = float(self.curve.losses[-1])
        return PathPoint(loss, found.inside**0.5, found.between**0.5)


def measured_constants(
    config: RunConfig,
    *,
    visits: int = 4,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> Measured:
    """The constants of Theorem 1 along a short run of a config's own schedule.

    Measured at the start and at `visits - 1` models on the way to `config.steps`.
    """
    if visits < 1:
        raise InputError("visits", visits, "at least one model")
    laboratory = TrainingLaboratory(config)
    models = [laboratory.problem.model]
    if visits > 1:
        alpha, (tau1, tau2) = config.schedule.alpha, (config.schedule.tau1, config.schedule.tau2)
        averager = laboratory.network.averager(config.averager, alpha)
        price = cost(laboratory.network, laboratory.latencies, tau1, tau2, averager)
        run = laboratory.start(Candidate(tau1, tau2, alpha, averager, price))
        for number in range(1, visits):
            progress(0, 1, f"training to iteration {config.steps * number // (visits - 1)}")
            run.advance(config.steps * number // (visits - 1))
            models.append(run.model())
    return measure(
        models,
        laboratory.problem.data,
        laboratory.network,
        batch_size=config.batch_size,
        seed=config.seed,
        progress=progress,
    )


def _profile(config: RunConfig, model: nn.Module, data: ClientData) -> LatencyProfile:
    profile = load_profile(config.clock.profile)
    if profile.flops_per_step is None:
        shape = tuple(data.inputs.shape[1:])
        profile = profile.with_flops(count_flops(model, shape, config.batch_size))
    return profile
