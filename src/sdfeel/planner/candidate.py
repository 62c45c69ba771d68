"""A candidate: one row of a plan, from what it trains with to what was measured of it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.methods.codecs import CODECS, Codec
from sdfeel.algorithm.methods.corrections import Correction
from sdfeel.algorithm.methods.optimizers import OPTIMIZERS, SGD, Optimizer, reach
from sdfeel.algorithm.methods.rates import Rate, ShapedRate
from sdfeel.algorithm.paces import PACES, Pace, Synchronous
from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import LatencyProfile
from sdfeel.network import AVERAGERS, Averager, Network
from sdfeel.planner.price import NOTHING, Array, LossCurve, Price, price_of
from sdfeel.simulation.settings import Settings
from sdfeel.theory.drift import disagreement_eigenvalues

if TYPE_CHECKING:
    from sdfeel.simulation.simulation import Simulation

__all__ = ["Candidate", "Place", "codec_name", "gain_of", "name_in"]


@dataclass(eq=False)
class Candidate:
    """One way to train, and what is known of it.

    price       what it takes
    gamma       how boldly its correction takes in the drift of servers
    gain        how many times as far as the pilot's an iteration gets: 1, but for momentum that
                begins anew in every period, and for clusters faster than the slowest
    predicted   the curve that is predicted; curve: what was measured, as far as it was trained
    dropped_at  simulated seconds at which it left its race; None if it stayed
    """

    tau1: int
    tau2: int
    averager: Averager
    codecs: Mapping[str, Codec]
    correction: Correction | None
    optimizer: Optimizer
    lr: Rate
    pace: Pace
    price: Price
    gamma: float = 1.0
    gain: float = 1.0
    predicted: LossCurve = NOTHING
    curve: LossCurve = NOTHING
    dropped_at: float | None = None

    @property
    def alpha(self) -> int:
        """Exchanges in one mixing."""
        return max(1, self.averager.exchanges)

    @property
    def settings(self) -> dict[str, Any]:
        """What it trains with, as arguments of `sdfeel.train`."""
        own_averager = self.averager.name not in AVERAGERS
        return {
            "schedule": Schedule(self.tau1, self.tau2, self.alpha),
            "averager": self.averager if own_averager else self.averager.name,
            "codecs": dict(self.codecs),
            "correction": self.correction,
            "optimizer": self.optimizer,
            "lr": self.lr,
            "pace": self.pace,
        }

    @property
    def names(self) -> dict[str, Any]:
        """What is chosen beside optimizer and pace, by the key that sets it: a row of a table."""
        numbers = {"tau1": self.tau1, "tau2": self.tau2, "alpha": self.alpha}
        codecs = {f"codecs.{way}": codec_name(codec) for way, codec in self.codecs.items()}
        correction = "none" if self.correction is None else self.correction.name
        return numbers | {"averager": self.averager.name, **codecs, "correction": correction}

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for two candidates that train alike."""
        others = (self.correction, self.optimizer, self.lr, self.pace)
        return (*self.names.values(), repr(others))

    @property
    def sent(self) -> dict[str, Codec]:
        """What arrives otherwise than it was sent, by codec and way: "int8 up"."""
        lossy = {way: codec for way, codec in self.codecs.items() if not codec.exact}
        return {f"{codec_name(codec)} {way}": codec for way, codec in lossy.items()}

    @property
    def is_plain(self) -> bool:
        """Whether it is without codecs and correction."""
        return not self.sent and self.correction is None

    @property
    def was_trained(self) -> bool:
        return len(self.curve.iterations) > 0

    def scaled(self, scale: float) -> LossCurve:
        """The predicted curve with so many times as many iterations."""
        iterations = scale * self.predicted.iterations
        return replace(
            self.predicted, iterations=iterations, seconds=self.price.seconds_of(iterations)
        )

    @property
    def complexity(self) -> tuple[Any, ...]:
        """Of two candidates about as good, the one with less of this is recommended.

        Simpler is, in this order: servers that wait for each other, fewer codecs, no correction,
        SGD, the paper's averager, fewer exchanges.
        """
        paces = list(PACES.values())
        return (
            paces.index(type(self.pace)) if type(self.pace) in paces else len(paces),
            len(self.sent),
            self.correction is not None,
            not isinstance(self.optimizer, SGD),
            self.averager.name != "paper",
            self.averager.exchanges,
        )

    @property
    def eta(self) -> float:
        """The rate, by which all of its shape is scaled."""
        return float(self.lr.eta) if isinstance(self.lr, ShapedRate) else float(self.lr(1))

    @property
    def stepping(self) -> str:
        """Optimizer and rate in words."""
        return f"{name_in(OPTIMIZERS, self.optimizer)}, rate {self.eta:g}"

    @property
    def methods(self) -> str:
        """Codecs and correction in words; nothing for a plain candidate."""
        corrections = [] if self.correction is None else [f"{self.correction.name} correction"]
        return ", ".join([*self.sent, *corrections])

    @cached_property
    def eigenvalues(self) -> Array:
        return disagreement_eigenvalues(self.averager)

    def __str__(self) -> str:
        alpha = f", alpha {self.alpha}" if self.averager.takes_alpha else ""
        methods = f", {self.methods}" if self.methods else ""
        if "rounds" in self.pace.breaks:
            return f"{self.pace.label}, tau1 {self.tau1}{methods}"
        pace = "" if self.pace == Synchronous() else f"{self.pace.label}, "
        return f"{pace}tau1 {self.tau1}, tau2 {self.tau2}, {self.averager.name}{alpha}{methods}"


def codec_name(codec: Codec) -> str:
    """As settings call it; with its numbers where they are not the usual ones."""
    known = CODECS.get(name_in(CODECS, codec))
    return repr(codec) if known is not None and codec != known() else name_in(CODECS, codec)


def name_in(known: Mapping[str, type], value: object) -> str:
    """As settings call it; an object of the user's goes by its class."""
    kind = type(value)
    return next((name for name, other in known.items() if other is kind), kind.__name__)


@dataclass(frozen=True, eq=False)
class Place:
    """Where candidates would train: all that their prices follow from.

    settings    those that stay
    parameters  numbers in a model
    prices      by what touches time, so that candidates that differ in other things share one
    """

    settings: Settings
    network: Network
    profile: LatencyProfile
    parameters: int
    prices: dict[tuple[Any, ...], Price] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, simulation: Simulation) -> Place:
        parameters = simulation.problem.layout.parameters
        return cls(simulation.settings, simulation.network, simulation.profile, parameters)

    def with_settings(self, **settings: Any) -> Place:
        return replace(self, settings=self.settings.model_copy(update=settings))

    def elsewhere(self, network: Network, profile: LatencyProfile | None = None) -> Place:
        """The same clients on another graph, or with another clock."""
        return replace(self, network=network, profile=profile or self.profile, prices={})

    def algorithm(self, **settings: Any) -> Algorithm:
        """What settings come to here; what may surprise is said of the choice only."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            settings_here = self.settings.model_copy(update=settings)
            return settings_here.algorithm(self.network, self.profile, self.parameters)

    def candidate(self, **settings: Any) -> Candidate:
        """A candidate that differs from the settings that stay by these.

        Raises:
            InputError: the algorithm refuses them.
        """
        chosen = self.settings.model_copy(update=settings)
        algorithm = self.algorithm(**settings)
        tau1, tau2, _ = algorithm.schedule.at(0)
        price, correction = self._price(algorithm), algorithm.parts.get("correction")
        averager = chosen.averager if isinstance(chosen.averager, Averager) else algorithm.averager
        gamma = correction.gamma if isinstance(correction, Correction) else None
        return Candidate(
            tau1,
            tau2,
            averager,
            chosen.codecs,
            chosen.correction if isinstance(chosen.correction, Correction) else None,
            chosen.optimizer,
            chosen.lr,
            algorithm.pace,
            price,
            gamma=1.0 if gamma is None else gamma,
            gain=gain_of(algorithm.chain.optimizer, tau1) * price.gain,
        )

    def _price(self, algorithm: Algorithm) -> Price:
        averager, pace = algorithm.averager, algorithm.pace
        key = (
            algorithm.schedule.at(0)[:2],
            (averager.route, averager.exchanges, averager.model_times, averager.messages),
            averager.links,
            tuple(algorithm.uplink.bits.items()),
            (algorithm.vectors_down(False), algorithm.vectors_down(True)),
            pace,
        )
        if key not in self.prices:
            self.prices[key] = price_of(algorithm)
        return self.prices[key]


def gain_of(optimizer: Optimizer, tau1: int) -> float:
    """How far a constant gradient carries: as far each time, unless memory begins anew."""
    affine = optimizer.affine
    if affine is None or "fresh" in optimizer.breaks:
        return 1.0
    return reach(affine, [1.0] * tau1) / tau1 / reach(affine, [1.0])
