"""A simulation: network, algorithm, clock, data, model and seed, checked and put together once.

`sdfeel.train`, the planner, the reproduction and the benchmark all build this one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.asynchronous import Asynchronous
from sdfeel.algorithm.pace import TurnPace
from sdfeel.algorithm.trainer import Trainer
from sdfeel.clock import LatencyProfile
from sdfeel.data import ClientSource
from sdfeel.errors import InputError
from sdfeel.network import Clusters, Network
from sdfeel.records.checkpoints import Checkpoint, Row
from sdfeel.simulation.by_rounds import RoundRun
from sdfeel.simulation.by_turns import TurnRun
from sdfeel.simulation.engines.choose import ChosenEngine, build_engine, check_engine
from sdfeel.simulation.engines.engine import Engine
from sdfeel.simulation.engines.trainers import TrainerEngine, check_trainers
from sdfeel.simulation.evaluation import (
    Evaluation,
    Metric,
    check_metrics,
    of_each,
    usual_metrics,
)
from sdfeel.simulation.fingerprint import data_digests, fingerprint
from sdfeel.simulation.fit import Loss, check_loss, check_values, whole
from sdfeel.simulation.flops import counted, doubt
from sdfeel.simulation.loop import Keeper, NoKeeper, Outcome, Progress, run_loop
from sdfeel.simulation.parameters import ParameterLayout
from sdfeel.simulation.problem import Problem, check_device, make_problem
from sdfeel.simulation.ranks import Placement, Ranks, join, place
from sdfeel.simulation.rule_check import check_correction, check_rule
from sdfeel.simulation.running import Means, Run
from sdfeel.simulation.samples import test_samples, train_samples
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.state import State
from sdfeel.simulation.turns import TurnState

__all__ = ["ClockWarning", "NegativeMixingWarning", "RoundingWarning", "Simulation"]

# Amplification of rounding above which float32 exchanges between real servers lose their meaning.
MAX_AMPLIFICATION = 1e4


class NegativeMixingWarning(UserWarning):
    """An exchange gives some model a negative weight: it converges, but is no convex average."""


class ClockWarning(UserWarning):
    """The clock charges the FLOPs of another model."""


class RoundingWarning(UserWarning):
    """The averager is exact on paper, but not in the arithmetic of real servers."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """What a run consists of.

    settings   as the user has them
    network    the user's, with what each client holds
    algorithm  what is done, on the scheme's own servers
    problem    model, loss and data: of the clients that this process holds
    profile    what computing and sending cost
    start      w_0 as a vector
    """

    settings: Settings
    network: Network
    algorithm: Algorithm
    problem: Problem
    profile: LatencyProfile
    start: Tensor
    evaluation: Evaluation
    ranks: Ranks
    placement: Placement

    @classmethod
    def assemble(
        cls,
        model: nn.Module | None,
        data: Any,
        settings: Settings,
        *,
        network: Network,
        loss: Loss | None = None,
        metrics: Mapping[str, Metric] | None = None,
        test: Any = None,
        partition: str | Sequence[Any] | None = None,
    ) -> Simulation:
        """Every mistake that a user can make is named here, before any training."""
        if not isinstance(network, Network):
            raise InputError("network", network, "a sdfeel.Network, such as Network.ring(10, 5)")
        if not isinstance(model, nn.Module):
            raise InputError("model", model, "a torch.nn.Module (an object, not its class)")
        check_loss(loss or F.cross_entropy)
        check_metrics(metrics)
        check_engine(settings.engine)
        device = check_device(settings.device)
        source = ClientSource.of(data, partition, network.clients, settings.seed)
        network = network.with_samples(_checked(source.samples, network.clients))
        model = whole(model, lambda: source.take([0]).part(slice(2))[0], settings.seed)
        latency = counted(settings.latency, model, source, settings.batch_size)
        parameters = ParameterLayout.of(model).parameters
        algorithm = settings.algorithm(network, latency, parameters)
        check_rule(algorithm.local)
        check_correction(algorithm.correction)
        ranks = join()
        placement = place(algorithm.network.clusters, ranks.size)
        held = placement.clients[ranks.rank] if ranks.size > 1 else None
        problem = make_problem(
            model,
            source.take(held),
            loss=loss or F.cross_entropy,
            batch_size=settings.batch_size,
            seed=settings.seed,
            local=algorithm.local,
            rate=algorithm.rate,
            device=device,
            held=None if held is None else np.array(held),
        )
        if held is not None:
            source.forget()
        if metrics is None:
            metrics = usual_metrics(problem.loss, problem.data.targets)
        check_values(problem.model, metrics, problem.data)
        count = settings.train_samples
        if algorithm.each and count is not None:
            count = min(count, of_each(algorithm.network.servers))
        evaluation = Evaluation(
            every=settings.evaluate_every or max(1, settings.steps // 20),
            train=train_samples(problem, source.samples, count),
            test=test_samples(test, problem),
            metrics=metrics,
            servers=settings.evaluate_servers,
        )
        start = problem.layout.vector(problem.model).clone()
        return cls(
            settings, network, algorithm, problem, latency, start, evaluation, ranks, placement
        )

    def changed(self, **settings: Any) -> Simulation:
        """The same model and data under other settings of the algorithm."""
        other = self.settings.model_copy(update=settings)
        parameters = self.problem.layout.parameters
        algorithm = other.algorithm(self.network, self.profile, parameters)
        placement = place(algorithm.network.clusters, self.ranks.size)
        problem = replace(self.problem, local=algorithm.local, rate=algorithm.rate)
        return replace(
            self, settings=other, algorithm=algorithm, placement=placement, problem=problem
        )

    def fingerprint(self) -> str:
        """A hash of everything that decides what this computes; of all ranks together."""
        digests = self.ranks.in_client_order(data_digests(self.problem), self.placement)
        return fingerprint(self.algorithm, self.problem, self.profile, self.start, digests)

    def engine(self, name: str | None = None) -> ChosenEngine:
        """What carries it out: as set, or by another name."""
        alone = self.ranks.size == 1
        found = build_engine(name or self.settings.engine, self.problem, self.start, measure=alone)
        if alone:
            return found
        return ChosenEngine(found.engine, f"{found.reason}; on each of {self.ranks.size} ranks")

    def engine_of(self, trainers: Sequence[Trainer]) -> ChosenEngine:
        """Trainers of the user's in place of an engine."""
        tau1 = self.algorithm.schedule.tau1
        check_trainers(trainers)
        if self.settings.engine != "auto":
            raise InputError("engine", self.settings.engine, "trainers take the place of an engine")
        if self.settings.local != Settings().local:
            raise InputError("local", self.settings.local, "with trainers that is their business")
        if self.settings.correction is not None:
            raise InputError("correction", self.settings.correction, "trainers do not take one")
        if self.ranks.size > 1:
            raise InputError("trainers", len(trainers), "on one process only")
        turns = isinstance(self.algorithm.pace, TurnPace)  # where a period is never cut
        if isinstance(self.algorithm.pace, Asynchronous) and self.settings.flower is not None:
            raise InputError(
                "pace",
                self.settings.pace,
                "counts the steps that each client makes in its time, and an app makes those that "
                "it makes; fedbuff and fedasync do not count them",
            )
        if not turns and (self.evaluation.every % tau1 or self.settings.steps % tau1):
            raise InputError(
                "evaluate_every",
                self.evaluation.every,
                f"with trainers it and steps must be multiples of tau1 = {tau1}: a trainer is "
                "asked for whole upload periods",
            )
        return ChosenEngine(TrainerEngine(self.problem, trainers), "trainers of the user's")

    def by_periods(self) -> Simulation:
        """Evaluated where upload periods end, unless the settings say when."""
        if self.settings.evaluate_every is not None:
            return self
        tau1 = self.algorithm.schedule.tau1
        every = -(-self.evaluation.every // tau1) * tau1
        return replace(self, evaluation=replace(self.evaluation, every=every))

    def run(
        self,
        engine: Engine,
        *,
        steps: int | None = None,
        evaluation: Evaluation | None = None,
        keeper: Keeper | None = None,
        on_progress: Callable[[Progress], object] = lambda _: None,
        on_row: Callable[[list[Row]], object] = lambda _: None,
        on_round: Callable[[Progress], object] = lambda _: None,
        start: Checkpoint | None = None,
    ) -> Outcome:
        """Algorithm 1 from the start, or from a checkpoint."""
        means = Means(
            engine,
            evaluation or self.evaluation,
            keeper or NoKeeper(),
            steps or self.settings.steps,
            self.settings.until,
        )
        run = self._run(means)
        return run_loop(run, on_progress=on_progress, on_row=on_row, on_round=on_round, start=start)

    def _run(self, means: Means) -> Run:
        """In rounds, or by turns where the pace has none."""
        own = self.start, self.ranks, self.placement
        if not isinstance(self.algorithm.pace, TurnPace):
            return RoundRun(State(self.problem, self.algorithm, *own), means)
        agenda = self.algorithm.pace.agenda(self.algorithm)
        return TurnRun(TurnState(self.problem, self.algorithm, agenda, *own), agenda, means)

    def warn(self) -> None:
        """Say what is no mistake, but may surprise."""
        averager = max(self.algorithm.mixings, key=lambda one: one.amplification)
        negative = (one.has_negative_weights for one in self.algorithm.mixings)
        if any(negative) and not averager.overshoots:
            warnings.warn(
                "clusters with unequal amounts of data give the paper's mixing matrix negative "
                "entries; averager='metropolis' has none (and mixes more slowly)",
                NegativeMixingWarning,
                stacklevel=4,
            )
        if averager.amplification > MAX_AMPLIFICATION:
            warnings.warn(
                f"averager {averager.name!r} enlarges rounding errors "
                f"{averager.amplification:.0e}-fold on this network: this simulation applies its "
                "exact result, real servers would not reach it; 'all-reduce' gives the same mean",
                RoundingWarning,
                stacklevel=4,
            )

    def warn_of_clock(self, own: bool = False) -> None:
        """Say if the clock charges for another model; own: trainers do the local updates."""
        said = doubt(self.profile, self.problem, own) if self.ranks.leads else None
        if said is not None:
            warnings.warn(said, ClockWarning, stacklevel=4)

    def drawn(self) -> dict[str, Any]:
        """What a reader needs to draw the network and count its seconds: network.json."""
        network = self.network
        sizes = [len(members) for members in network.clusters.members]
        in_order = network.clusters == Clusters.of_sizes(sizes)
        samples = np.bincount(network.clusters.server_of, network.shares.samples)
        return {
            "sizes": sizes,
            "clusters": None if in_order else network.clusters.members,
            "links": sorted(sorted(link) for link in network.graph.edges()),
            **({"graphs": network.turns} if network.changes else {}),
            "samples": samples.tolist(),
            "parameters": self.problem.layout.parameters,
            "flops_per_step": self.profile.flops_per_step,
        }

    def about(self) -> dict[str, Any]:
        """What a run that no config describes was started with."""
        network = self.algorithm.network
        return {
            **self.settings.table(),
            "clusters": network.clusters.members,
            "links": sorted(sorted(link) for link in network.graph.edges()),
            **({"graphs": network.turns or str(network)} if network.changes else {}),
            "samples": network.shares.samples,
            "model": str(self.problem.model),
            "loss": getattr(self.problem.loss, "__qualname__", str(self.problem.loss)),
        }


def _checked(samples: NDArray[np.int64], clients: int) -> NDArray[np.int64]:
    if len(samples) != clients:
        raise InputError("client_datasets", len(samples), f"the network has {clients} clients")
    return samples
