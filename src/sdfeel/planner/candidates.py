"""The schedules a planner chooses from, and what a round of each costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sdfeel.clock import EventClock, Latencies, Uplink
from sdfeel.network import AVERAGERS, Averager, Network, route_of
from sdfeel.theory.drift import disagreement_eigenvalues

__all__ = ["ALPHAS", "PLANNED_AVERAGERS", "TAUS", "Candidate", "Price", "candidates", "cost"]

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
    exchange  one inter-cluster aggregation
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
    """One (tau1, tau2, alpha, averager) with its cost on the network that is planned for."""

    tau1: int
    tau2: int
    alpha: int
    averager: Averager
    cost: Price

    @property
    def key(self) -> tuple[int, int, int, str]:
        return (self.tau1, self.tau2, self.alpha, self.averager.name)

    @cached_property
    def eigenvalues(self) -> NDArray[np.float64]:
        return disagreement_eigenvalues(self.averager)

    def __str__(self) -> str:
        alpha = f", alpha {self.alpha}" if self.averager.takes_alpha else ""
        return f"tau1 {self.tau1}, tau2 {self.tau2}, {self.averager.name}{alpha}"


def candidates(
    network: Network,
    latencies: Latencies,
    *,
    tau1: Iterable[int] = TAUS,
    tau2: Iterable[int] = TAUS,
    alpha: Iterable[int] = ALPHAS,
    averagers: Iterable[str] = PLANNED_AVERAGERS,
    prune: bool = True,
) -> list[Candidate]:
    """The grid without what is twice in it; with `prune`, without what cannot be best.

    Twice: the same operator at the same price (chebyshev with alpha 1 is paper with alpha 1).
    Cannot be best (Remark 2): same tau1 and tau2, no better contraction, and no cheaper.
    """
    kinds = _averagers(network, tuple(alpha), tuple(averagers))
    second = tuple(tau2) if network.servers > 1 else (1,)
    found = [
        Candidate(a, b, kind.alpha, kind.averager, cost(network, latencies, a, b, kind.averager))
        for a in tau1
        for b in second
        for kind in kinds
    ]
    found.sort(key=lambda one: (one.tau1, one.tau2, one.cost.exchange, one.averager.contraction))
    return _undominated(found) if prune else found


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
    """`found` is sorted by cost inside each (tau1, tau2): keep who improves the contraction."""
    kept: list[Candidate] = []
    for one in found:
        cheaper = [k for k in kept if (k.tau1, k.tau2) == (one.tau1, one.tau2)]
        if all(one.averager.contraction < k.averager.contraction - 1e-12 for k in cheaper):
            kept.append(one)
    return kept


def cost(network: Network, latencies: Latencies, tau1: int, tau2: int, averager: Averager) -> Price:
    """What a round costs by the event clock, once servers wait for each other as they will.

    Unequal devices: a period lasts as long as its slowest client, and after some rounds every
    server waits, through its neighbours, for the slowest of all.
    """
    clock = EventClock(network, Uplink(latencies, network))
    everyone = np.ones(network.clients, dtype=bool)
    clock.local_updates(tau1)
    clock.upload(everyone)
    clock.broadcast(everyone, ~everyone)
    step = float(latencies.t_cmp.max())
    upload = float(clock.at.max()) - tau1 * step
    inside = clock.at.copy()
    rounds = 2 if np.ptp(inside) == 0 and not latencies.links else network.servers + 2
    clock.at = np.zeros_like(inside)
    before = 0.0
    for _ in range(rounds):
        before = float(clock.at.max())
        clock.at = clock.at + tau2 * inside
        clock.exchange(averager)
    exchange = float(clock.at.max()) - before - tau2 * float(inside.max())
    return Price(tau1, tau2, step, upload, max(exchange, 0.0))
