"""The schedules a planner chooses from, and what a round of each costs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.local import LocalRule
from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import EventClock, Latencies, Uplink
from sdfeel.errors import InputError
from sdfeel.network import AVERAGERS, Averager, Network, route_of
from sdfeel.planner.methods import PLAIN, Methods
from sdfeel.theory.drift import disagreement_eigenvalues

__all__ = [
    "ALPHAS", "PLANNED_AVERAGERS", "TAUS", "Assemble", "Candidate", "Price", "candidates", "cost",
]  # fmt: skip

# What a schedule, an averager and methods come to on the network that is planned for.
Assemble = Callable[[Schedule, Averager, Methods], Algorithm]

TAUS = (1, 2, 3, 5, 10, 20)
ALPHAS = (1, 2, 3, 5, 10)
# What a cloud does is only planned with if it is asked for.
PLANNED_AVERAGERS = tuple(name for name in AVERAGERS if route_of(name) != "cloud")
# float32 models keep seven digits: an averager that enlarges rounding more is not offered.
MAX_AMPLIFICATION = 1e4


@dataclass(frozen=True)
class Price:
    """Seconds of a round of tau1 tau2 iterations, by what takes them.

    step      one local update (of the slowest client)
    upload    one intra-cluster aggregation: up and, where a profile has rates for it, down again
    exchange  one inter-cluster aggregation, and what a correction sends down after it
    """

    tau1: int
    tau2: int
    step: float
    upload: float
    exchange: float

    @property
    def parts(self) -> dict[str, float]:
        """Compute, uplink and exchange in one round."""
        return {
            "compute": self.tau1 * self.tau2 * self.step,
            "uplink": self.tau2 * self.upload,
            "exchange": self.exchange,
        }

    @property
    def shares(self) -> dict[str, float]:
        total = sum(self.parts.values())
        return {name: part / total for name, part in self.parts.items()}

    @property
    def bottleneck(self) -> str:
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def per_iteration(self) -> float:
        return sum(self.parts.values()) / (self.tau1 * self.tau2)

    def seconds(self, iterations: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """The event clock: K t_cmp + floor(K/tau1) uploads + floor(K/(tau1 tau2)) exchanges."""
        k = np.asarray(iterations)
        uploads, exchanges = k // self.tau1, k // (self.tau1 * self.tau2)
        return np.asarray(k * self.step + uploads * self.upload + exchanges * self.exchange)

    def iterations_within(self, seconds: float) -> int:
        """The most iterations whose time is at most `seconds`."""
        k = max(0, int(seconds / self.per_iteration) - self.tau1 * self.tau2)
        while float(self.seconds(k + 1)) <= seconds:
            k += 1
        return k


@dataclass(frozen=True, eq=False)
class Candidate:
    """One schedule, averager and methods with their cost on the network that is planned for.

    gamma  how boldly a correction takes in the drift of servers here
    gain   how many times as far as the first of a period an iteration gets, for all of its tau1
           in the mean: 1, but for momentum that begins anew in every period
    """

    tau1: int
    tau2: int
    alpha: int
    averager: Averager
    cost: Price
    methods: Methods = PLAIN
    gamma: float = 1.0
    gain: float = 1.0

    @property
    def key(self) -> tuple[int, int, int, str, str]:
        return (self.tau1, self.tau2, self.alpha, self.averager.name, str(self.methods))

    @cached_property
    def eigenvalues(self) -> NDArray[np.float64]:
        return disagreement_eigenvalues(self.averager)

    def __str__(self) -> str:
        alpha = f", alpha {self.alpha}" if self.averager.takes_alpha else ""
        methods = "" if self.methods.plain else f", {self.methods}"
        return f"tau1 {self.tau1}, tau2 {self.tau2}, {self.averager.name}{alpha}{methods}"


def candidates(
    network: Network,
    latencies: Latencies,
    *,
    tau1: Iterable[int] = TAUS,
    tau2: Iterable[int] = TAUS,
    alpha: Iterable[int] = ALPHAS,
    averagers: Iterable[str] = PLANNED_AVERAGERS,
    methods: Sequence[Methods] = (PLAIN,),
    assemble: Assemble | None = None,
    prune: bool = True,
) -> list[Candidate]:
    """The grid without what is twice in it; with `prune`, without what cannot be best.

    Twice: the same operator at the same price (chebyshev with alpha 1 is paper with alpha 1).
    Cannot be best (Remark 2): same tau1, tau2 and methods, no better contraction, and no cheaper.
    Methods other than the plain ones are priced, and refused, by what `assemble` makes of them;
    where all are refused, the first refusal is raised.
    """
    kinds = _averagers(network, tuple(alpha), tuple(averagers))
    second = tuple(tau2) if network.servers > 1 else (1,)
    found: list[Candidate] = []
    refusals: list[InputError] = []
    for own in methods:
        left: Sequence[_Kind] = kinds
        for a, b in product(tau1, second):
            here: list[Candidate] = []
            for kind in left:
                try:
                    here.append(_candidate(network, latencies, a, b, kind, own, assemble))
                except InputError as refusal:
                    refusals.append(refusal)
            here.sort(key=lambda one: (one.cost.exchange, one.averager.contraction))
            kept = _undominated(here) if prune else here
            found += kept
            if assemble is not None and prune:  # who cannot be best with these periods cannot be
                left = [_Kind(one.alpha, one.averager) for one in kept]
    if not found and refusals:
        raise refusals[0]
    found.sort(key=lambda one: (one.tau1, one.tau2, one.cost.exchange, one.averager.contraction))
    return found


def _candidate(
    network: Network,
    latencies: Latencies,
    tau1: int,
    tau2: int,
    kind: _Kind,
    methods: Methods,
    assemble: Assemble | None,
) -> Candidate:
    averager, vectors, gamma, gain = kind.averager, 0, 1.0, 1.0
    if assemble is not None:
        with warnings.catch_warnings():  # what may surprise is said of what is chosen, once
            warnings.simplefilter("ignore", UserWarning)
            algorithm = assemble(Schedule(tau1, tau2, kind.alpha), averager, methods)
        latencies, gain = algorithm.uplink.latencies, _gain(algorithm.local, tau1)
        if algorithm.correction is not None:
            gamma = algorithm.correction.gamma or 1.0
            vectors = algorithm.correction.vectors_down(algorithm)
    elif not methods.plain:
        raise InputError("methods", str(methods), "planned with what can assemble them only")
    price = cost(network, latencies, tau1, tau2, averager, vectors)
    return Candidate(tau1, tau2, kind.alpha, averager, price, methods, gamma, gain)


def _gain(local: LocalRule, tau1: int) -> float:
    """For a constant gradient. A rule that keeps its memory goes as far in every iteration."""
    if local.affine is None or local.remembers:
        return 1.0
    return local.reach([1.0] * tau1) / tau1 / local.reach([1.0])


@dataclass(frozen=True, eq=False)
class _Kind:
    alpha: int
    averager: Averager


def _averagers(network: Network, alphas: Sequence[int], names: Sequence[str]) -> list[_Kind]:
    kinds: list[_Kind] = []
    for name in names:
        for alpha in alphas if network.averager(name).takes_alpha else (1,):
            averager = network.averager(name, alpha)
            if averager.amplification > MAX_AMPLIFICATION:
                continue
            shown = alpha if averager.takes_alpha else max(1, averager.exchanges)
            if not any(_same(averager, kind.averager) for kind in kinds):
                kinds.append(_Kind(shown, averager))
    return kinds


def _same(a: Averager, b: Averager) -> bool:
    """The same result at the same price."""
    price = (a.model_times, a.route == "cloud") == (b.model_times, b.route == "cloud")
    return price and bool(np.allclose(a.operator, b.operator, atol=1e-9))


def _undominated(found: Sequence[Candidate]) -> list[Candidate]:
    """`found` has the same periods and methods, by cost: keep who improves the contraction."""
    kept: list[Candidate] = []
    for one in found:
        if all(one.averager.contraction < k.averager.contraction - 1e-12 for k in kept):
            kept.append(one)
    return kept


def cost(
    network: Network,
    latencies: Latencies,
    tau1: int,
    tau2: int,
    averager: Averager,
    vectors: int = 0,
) -> Price:
    """What a round costs by the event clock, once servers wait for each other as they will.

    Unequal devices: a period lasts as long as its slowest client, and after some rounds every
    server waits, through its neighbours, for the slowest of all.
    vectors  how many more of a model's length go down to clients after an exchange
    """
    clock = EventClock(network, Uplink(latencies, network))
    everyone = np.ones(network.clients, dtype=bool)
    clock.local_updates(tau1)
    clock.upload(everyone)
    clock.broadcast(everyone, ~everyone)
    step = float(latencies.t_cmp.max())
    upload = float(clock.at.max()) - tau1 * step
    inside = clock.at.copy()
    more = _more_down(clock, everyone, vectors)
    rounds = 2 if np.ptp(inside) == 0 and not latencies.links else network.servers + 2
    clock.at = np.zeros_like(inside)
    before = 0.0
    for _ in range(rounds):
        before = float(clock.at.max())
        clock.at = clock.at + tau2 * inside
        clock.exchange(averager)
        clock.at = clock.at + more
    exchange = float(clock.at.max()) - before - tau2 * float(inside.max())
    return Price(tau1, tau2, step, upload, max(exchange, 0.0))


def _more_down(clock: EventClock, everyone: NDArray[np.bool_], vectors: int) -> NDArray[np.float64]:
    """Seconds that a broadcast takes longer, at each server, for what goes along."""
    times = []
    for count in (0, vectors):
        clock.at = np.zeros_like(clock.at)
        clock.broadcast(everyone, ~everyone, count)
        times.append(clock.at)
    return np.asarray(times[1] - times[0])
