"""The planner's laboratory: where candidates are trained, with what a simulation has set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sdfeel.algorithm.codecs import Codec
from sdfeel.algorithm.correction import Correction
from sdfeel.algorithm.local import LocalRule
from sdfeel.algorithm.pace import TurnPace
from sdfeel.algorithm.rates import Rate
from sdfeel.algorithm.schemes import SCHEMES
from sdfeel.clock import Latencies
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.planner.assembling import assembling
from sdfeel.planner.candidates import Assemble, Candidate, cost
from sdfeel.planner.methods import PLANNED_CODECS, PLANNED_CORRECTIONS, Methods, methods_of
from sdfeel.planner.options import Option, rated, rule_named
from sdfeel.planner.training import Training, TrainingRun
from sdfeel.simulation.evaluation import Evaluation, accuracy, subset
from sdfeel.simulation.simulation import Simulation
from sdfeel.theory.constants import MeasuredConstants, Probe, measure

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
        if simulation.network.changes:
            raise InputError("network", str(simulation.network), "the planner plans for one graph")
        self.simulation = simulation
        self.on_accuracy = on_accuracy
        self.lr = simulation.algorithm.rate(1)
        self.engine_name = simulation.settings.engine
        self.network: Network = simulation.network
        self._trained: dict[tuple[int, int, int, str, str], Training] = {}
        self._others: dict[tuple[LocalRule, Rate], TrainingLaboratory] = {}
        problem = simulation.problem
        self.probe = Probe(
            problem.model, problem.data, self.network, samples=100, seed=problem.seed,
            loss=problem.loss,
        )  # fmt: skip

    @property
    def latencies(self) -> Latencies:
        return self.simulation.algorithm.uplink.latencies

    def start(self, candidate: Candidate) -> TrainingRun:
        """A run of it; what was trained of it here before is not trained again."""
        if candidate.key not in self._trained:
            self._trained[candidate.key] = Training(self, candidate)
        return TrainingRun(self, candidate, self._trained[candidate.key])

    @property
    def own(self) -> Methods:
        """What the simulation has set."""
        settings = self.simulation.settings
        return Methods(**settings.codecs, correction=settings.correction)

    def methods(
        self,
        codecs: Mapping[str, Sequence[str | Codec]] | None = None,
        corrections: Sequence[str | Correction | None] | None = None,
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

    def options(
        self,
        rules: Sequence[str] | None = None,
        rates: Sequence[float] | None = None,
        *,
        grid: Callable[[TrainingLaboratory], Sequence[Candidate]],
    ) -> list[Option]:
        """Every rule with every rate, as named; else the simulation's own.

        grid  what stands to choice in a laboratory: a rule may refuse what another takes
        """
        own = self.simulation.settings
        found = {}
        for name in dict.fromkeys(rules) if rules is not None else [None]:
            local = own.local if name is None else rule_named(name, own.local)
            for eta in dict.fromkeys(rates) if rates is not None else [None]:
                lr = own.lr if eta is None else rated(eta, own.lr)
                laboratory = self.stepping(local, lr)
                found[local, lr] = Option(local, lr, laboratory, grid(laboratory))
        return list(found.values())

    def stepping(self, local: LocalRule, lr: Rate) -> TrainingLaboratory:
        """The same place with another local rule and rate."""
        own = self.simulation.settings
        if (local, lr) == (own.local, own.lr):
            return self
        if (local, lr) not in self._others:
            other = self.simulation.changed(local=local, lr=lr)
            self._others[local, lr] = TrainingLaboratory(other, on_accuracy=self.on_accuracy)
        return self._others[local, lr]

    def assembling(self, network: Network | None = None) -> Assemble:
        """What methods come to, here or on another network of the same clients."""
        own = self.simulation
        parameters = own.problem.layout.parameters
        return assembling(own.settings, network or own.network, own.profile, parameters)

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
