"""A simulation: network, algorithm, clock, data, model and seed, checked and put together once.

`sdfeel.train`, the planner, the reproduction and the benchmark all build this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.costs import iterations_within
from sdfeel.algorithm.trainer import Trainer
from sdfeel.clock import LatencyProfile
from sdfeel.data import ClientSource
from sdfeel.engines.choose import ChosenEngine, build_engine, check_engine
from sdfeel.engines.engine import Engine
from sdfeel.engines.fit import Loss, check_loss, check_values, whole
from sdfeel.engines.parameters import ParameterLayout
from sdfeel.engines.problem import Problem, check_device, make_problem
from sdfeel.engines.trainers import TrainerEngine, check_trainers
from sdfeel.errors import InputError, warn
from sdfeel.network import Clusters, Network
from sdfeel.network.graphs import positions_of
from sdfeel.records.checkpoints import Checkpoint
from sdfeel.simulation.apart import Apart
from sdfeel.simulation.evaluation import (
    Evaluation,
    Metric,
    check_metrics,
    of_each,
    usual_metrics,
)
from sdfeel.simulation.fingerprint import data_digests, fingerprint
from sdfeel.simulation.flops import charged
from sdfeel.simulation.listening import Keeper, Listener, NoKeeper
from sdfeel.simulation.loop import Run
from sdfeel.simulation.method_check import check_methods
from sdfeel.simulation.ranks import Ranks
from sdfeel.simulation.samples import test_samples, train_samples
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.state import State

# Amplification of rounding above which float32 exchanges between real servers lose their meaning.
MAX_AMPLIFICATION = 1e4
MOST_LISTED = 10_000  # clients that run.json names one by one


class NegativeMixingWarning(UserWarning):
    """An exchange gives some model a negative weight: it converges, but is no convex average."""


class RoundingWarning(UserWarning):
    """The averager is exact on paper, but not in the arithmetic of real servers."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """A simulation, assembled and checked: all that a run consists of.

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
        apart: Apart | None = None,
    ) -> Simulation:
        """Put a run together; every mistake that a user can make is named, before any training.

        Where `until` was set and `steps` was not, the run has as many iterations as fit into it.
        With `apart` trainers have the data, and `data` is None.
        """
        if not isinstance(network, Network):
            raise InputError("network", network, "a sdfeel.Network, such as Network.ring(10, 5)")
        if not isinstance(model, nn.Module):
            raise InputError("model", model, "a torch.nn.Module (an object, not its class)")
        check_loss(loss or F.cross_entropy)
        check_metrics(metrics)
        check_engine(settings.engine)
        device = check_device(settings.device)
        data = data if apart is None else apart.data
        source = ClientSource.of(data, partition, network.clients, settings.seed)
        if "batch_size" not in settings.model_fields_set and source.batch_size is not None:
            settings = settings.model_copy(update={"batch_size": source.batch_size})
        network = network.with_samples(_checked(source.samples, network.clients))
        if apart is None:
            model = whole(model, lambda: source.first(2).part(slice(None))[0], settings.seed)
        latency = charged(settings, model, source) if apart is None else apart.latency(settings)
        parameters = ParameterLayout.of(model).parameters
        algorithm = settings.algorithm(network, latency, parameters)
        check_methods(algorithm)
        if "until" in settings.model_fields_set and "steps" not in settings.model_fields_set:
            steps = iterations_within(algorithm, settings.until)
            settings = settings.model_copy(update={"steps": steps})
        ranks = Ranks.of(algorithm.network.clusters)
        clients = ranks.clients if ranks.size > 1 else None
        if apart is not None:
            problem = apart.problem(model, loss or F.cross_entropy, settings, algorithm)
        else:
            problem = make_problem(
                model,
                source.take(None if clients is None else clients.tolist()),
                loss=loss or F.cross_entropy,
                batch_size=settings.batch_size,
                seed=settings.seed,
                chain=algorithm.chain,
                rate=algorithm.rate,
                device=device,
                client_numbers=clients,
            )
        if clients is not None:
            source.forget()
        tested = test_samples(test, problem, apart is not None)
        if metrics is None:
            judged = problem.data.targets if apart is None or tested is None else tested[1]
            metrics = usual_metrics(problem.loss, judged)
        if apart is None:
            check_values(problem.model, metrics, problem.data)
        count = settings.train_samples
        if algorithm.scheme.each and count is not None:
            count = min(count, of_each(algorithm.network.servers))
        evaluation = Evaluation(
            every=settings.evaluate_every or max(1, settings.steps // 20),
            train=train_samples(problem, source.samples, count) if apart is None else None,
            test=tested,
            metrics=metrics,
            servers=settings.evaluate_servers,
            others=None if apart is None else apart.others,
        )
        start = problem.layout.vector(problem.model).clone()
        return cls(settings, network, algorithm, problem, latency, start, evaluation, ranks)

    def changed(self, **settings: Any) -> Simulation:
        """Return the same model and data under other settings of the algorithm."""
        other = self.settings.model_copy(update=settings)
        parameters = self.problem.layout.parameters
        algorithm = other.algorithm(self.network, self.profile, parameters)
        ranks = Ranks.of(algorithm.network.clusters)
        problem = replace(self.problem, chain=algorithm.chain, rate=algorithm.rate)
        return replace(self, settings=other, algorithm=algorithm, ranks=ranks, problem=problem)

    def fingerprint(self) -> str:
        """A hash of everything that decides what this computes; of all ranks together."""
        digests = self.ranks.in_client_order(data_digests(self.problem))
        return fingerprint(self.algorithm, self.problem, self.profile, self.start, digests)

    def engine(self, name: str | None = None) -> ChosenEngine:
        """Build the engine that is set, or another one by its name."""
        alone = self.ranks.size == 1
        chosen = build_engine(name or self.settings.engine, self.problem, self.start, measure=alone)
        if alone:
            return chosen
        return ChosenEngine(chosen.engine, f"{chosen.reason}; on each of {self.ranks.size} ranks")

    def engine_of(self, trainers: Sequence[Trainer]) -> ChosenEngine:
        """Trainers of the user's in place of an engine."""
        check_trainers(trainers)
        self.check_for_trainers()
        who = "trainers of the user's" if self.settings.flower is None else "a Flower app's clients"
        return ChosenEngine(TrainerEngine(self.problem, trainers), who)

    def check_for_trainers(self) -> None:
        """Raise InputError if trainers cannot do what the settings ask for."""
        if self.settings.engine != "auto":
            raise InputError("engine", self.settings.engine, "trainers take the place of an engine")
        if self.settings.optimizer != Settings().optimizer:
            remedy = "with trainers that is their business"
            raise InputError("optimizer", self.settings.optimizer, remedy)
        for field, method in self.algorithm.parts.items():
            if method.has("gradient"):
                raise InputError(field, method.name, "trainers compute gradients of their own")
        if self.ranks.size > 1:
            raise InputError("ranks", self.ranks.size, "trainers are called on one process only")
        if self.algorithm.pace.counts_steps and self.settings.flower is not None:
            raise InputError(
                "pace",
                self.settings.pace,
                "counts the steps that each client makes in its time, and an app makes those that "
                "it makes; fedbuff and fedasync do not count them",
            )

    def run(
        self,
        engine: Engine,
        *,
        steps: int | None = None,
        evaluation: Evaluation | None = None,
        keeper: Keeper | None = None,
        listener: Listener | None = None,
        start: Checkpoint | None = None,
    ) -> Run:
        """Carry it out from the start, or from a checkpoint."""
        run = Run(
            State(self.problem, self.algorithm, self.start, self.ranks),
            engine,
            evaluation or self.evaluation,
            steps or self.settings.steps,
            self.settings.until,
            keeper or NoKeeper(),
            listener or Listener(),
        )
        run.carry_out(start)
        return run

    def warn(self) -> None:
        """Say what is no mistake, but may surprise."""
        averager = max(self.algorithm.mixings, key=lambda mixing: mixing.amplification)
        negative = (mixing.has_negative_weights for mixing in self.algorithm.mixings)
        if any(negative) and not averager.overshoots:
            warn(
                "clusters with unequal amounts of data give the paper's mixing matrix negative "
                "entries; averager='metropolis' has none (and mixes more slowly)",
                NegativeMixingWarning,
            )
        if averager.amplification > MAX_AMPLIFICATION:
            warn(
                f"averager {averager.name!r} enlarges rounding errors "
                f"{averager.amplification:.0e}-fold on this network: this simulation applies its "
                "exact result, real servers would not reach it; 'all-reduce' gives the same mean",
                RoundingWarning,
            )

    def drawn(self) -> dict[str, Any]:
        """Return what a reader needs to draw the network and count its seconds: network.json."""
        network = self.network
        sizes = [len(members) for members in network.clusters.members]
        in_order = network.clusters == Clusters.of_sizes(sizes)
        samples = np.bincount(network.clusters.server_of, network.shares.samples)
        places = positions_of(network.graph)
        is_apart = self.evaluation.others is not None  # only the clients' trainers know them
        return {
            "sizes": sizes,
            "clusters": None if in_order else network.clusters.members,
            "links": sorted(sorted(link) for link in network.graph.edges()),
            **({"graphs": network.turns} if network.changes else {}),
            **({} if places is None else {"positions": places}),
            "samples": samples.tolist(),
            **({"client_samples": list(map(int, network.shares.samples))} if is_apart else {}),
            "parameters": self.problem.layout.parameters,
            "flops_per_step": self.profile.flops_per_step,
        }

    def about(self) -> dict[str, Any]:
        """Return the settings of a run that no config describes, for run.json.

        It names every client of a small network; of a larger one it says how many there are.
        """
        network = self.algorithm.network
        clients: dict[str, Any] = {"clients": network.clients}
        if network.clients <= MOST_LISTED:
            clients = {"clusters": network.clusters.members, "samples": network.shares.samples}
        return {
            **self.settings.table(),
            **clients,
            "links": sorted(sorted(link) for link in network.graph.edges()),
            **({"graphs": network.turns or str(network)} if network.changes else {}),
            "model": str(self.problem.model),
            "loss": getattr(self.problem.loss, "__qualname__", str(self.problem.loss)),
        }


def _checked(samples: NDArray[np.int64], clients: int) -> NDArray[np.int64]:
    if len(samples) != clients:
        raise InputError("client_datasets", len(samples), f"the network has {clients} clients")
    return samples
