"""Turns: what happens where nobody waits. A group of clients is ready, and its server takes it.

A group is the clients that begin together from one model: a server's cluster or, in a star without
rounds, one client. Its turn comes when its time is over: with w0 the model that it began from,

    w <- keep w + sum_i weights_i w_i - total w0        (total = sum_i weights_i, or 0)

on its server's model w, which neighbours may have moved since; then the server mixes, and the group
begins anew from its model. What a group trains depends on w0 alone. So the turns of different
groups that come one after the other can be trained together, and only then be taken in their order.

Where a codec rounds models on their way down, clients hold h, which is near w0, and begin from it:

    w <- keep w + sum_i weights_i w_i - scale w0 - (total - scale) h

Where a server takes its clients by another rule than the mean, it is asked for the models that they
would have, had all made the same number of steps:

    w <- w + scale (rule(v_i, shares_i, h) - w0),        v_i = h + stretch_i (w_i - h)

With the mean for a rule the last two are one, and with h = w0 all three.

An `Agenda` is where every group stands. Whose turn is next is a function of profile and seed, and
not of any model: the order is known before anybody trains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sdfeel.clock import EventClock
from sdfeel.network import Averager

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm

__all__ = ["Agenda", "Flow", "Part", "Turn"]

Indices = NDArray[np.int64]
Seconds = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Flow:
    """How a server mixes with its neighbours when it is ready: it alone, or both ends of a link.

    w_d <- w_d + sum_j inward_j (w_j - w_d)
    w_j <- w_j + outward_j (w_d - w_j)             with the w_d from before
    """

    server: int
    neighbours: tuple[int, ...]
    inward: tuple[float, ...]
    outward: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """What a group's clients have done in its time: numbers, iterations and weights of each.

    scale    how much of `total` stands for the server's own model, and not for what clients held
    shares   m-hat, and stretch: thetabar / theta_i; weights = scale shares stretch. In a star none
    waits    it is put aside until a turn comes that does not
    """

    clients: Indices
    first: Indices
    last: Indices
    weights: Seconds
    total: float
    keep: float = 1.0
    waits: bool = False
    scale: float = 0.0
    shares: Seconds | None = None
    stretch: Seconds | None = None


@dataclass(frozen=True, eq=False)
class Turn:
    """One group is ready, `at` this second; `mixing` is what its server, or all, do then.

    k  its iterations, this turn's included
    """

    group: int
    server: int
    part: Part
    at: float
    k: int
    mixing: Averager | Flow | None = None


@dataclass(eq=False)
class Agenda(ABC):
    """Where every group stands.

    begun       when its present period began; what it has is `length` seconds
    turns       how many it has had
    iterations  of each client, in all
    waited      seconds that each server has waited for other clusters
    """

    algorithm: Algorithm
    groups: tuple[Indices, ...]  # their clients
    length: Seconds
    begun: Seconds = field(init=False)
    turns: Indices = field(init=False)
    iterations: Indices = field(init=False)
    waited: Seconds = field(init=False)

    def __post_init__(self) -> None:
        self.begun = np.zeros(len(self.groups))
        self.turns = np.zeros(len(self.groups), dtype=np.int64)
        self.iterations = np.zeros(self.algorithm.network.clients, dtype=np.int64)
        self.waited = np.zeros(self.algorithm.network.servers)

    @abstractmethod
    def server_of(self, group: int) -> int:
        """The server whose model a group begins from."""

    @property
    @abstractmethod
    def made(self) -> Indices:
        """Iterations of each group."""

    @property
    def k(self) -> int:
        """Iterations of the slowest group."""
        return int(self.made.min())

    @abstractmethod
    def part(self, group: int) -> Part:
        """What a group whose time is over hands in."""

    @abstractmethod
    def mixing(self, group: int) -> Flow | None:
        """What its server does then; this turn is counted already."""

    @abstractmethod
    def seconds_after(self, group: int, part: Part, flow: Flow | None) -> float:
        """Until its next period begins."""

    def numbers(self) -> dict[str, NDArray[np.float64]]:
        """All that changes, as columns by name."""
        return {
            "groups.agenda": np.stack([self.begun, self.turns], axis=1),
            "clients.iterations": self.iterations[:, None].astype(float),
            "servers.waited": self.waited[:, None],
        }

    def restore(self, numbers: dict[str, NDArray[np.float64]]) -> None:
        """As `numbers` had it."""
        self.begun = numbers["groups.agenda"][:, 0].copy()
        self.turns = numbers["groups.agenda"][:, 1].astype(np.int64)
        self.iterations = numbers["clients.iterations"][:, 0].astype(np.int64)
        self.waited = numbers["servers.waited"][:, 0].copy()

    @property
    def ready(self) -> Seconds:
        """When the time of each group is over."""
        return self.begun + self.length

    @property
    def seconds(self) -> float:
        """The time now: when the latest period began."""
        return float(self.begun.max())

    @property
    def idle_share(self) -> float:
        """The share of time that servers have waited for other clusters, on average."""
        return float(self.waited.mean() / self.seconds) if self.seconds > 0 else 0.0

    @property
    def together(self) -> bool:
        """Whether all servers are ready at the same moment, after as many turns: Algorithm 1."""
        ready = self.ready
        return bool((ready == ready[0]).all() and (self.turns == self.turns[0]).all())

    def copy(self) -> Agenda:
        """One that goes its own way."""
        other = copy(self)
        for name in ("begun", "turns", "iterations", "waited"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def window(self, every: int, steps: int, until: float) -> tuple[list[Turn], Agenda]:
        """The next turns, no group twice, and how things stand after them.

        It ends where the run does, and where k passes a multiple of `every`.
        """
        after, turns = self.copy(), []
        seen: set[int] = set()
        goal = min((self.k // every + 1) * every, steps)
        while after.k < goal and after.seconds < until:
            if len(self.groups) > 1 and after._all_take_part and after.together:
                if seen:
                    break
                turns += after._take_all()
                seen = set(range(len(self.groups)))
                continue
            group = int(np.argmin(after.ready))
            if group in seen:
                break
            turns.append(after._take(group))
            seen.add(group)
        return turns, after

    @property
    def _all_take_part(self) -> bool:
        """Whether groups are the clusters of servers that could mix together."""
        return len(self.groups) == self.algorithm.network.servers

    def _take(self, group: int) -> Turn:
        at = float(self.ready[group])
        part = self._counted(group)
        flow = self.mixing(group)
        self.begun[group] = at + self.seconds_after(group, part, flow)
        return Turn(group, self.server_of(group), part, at, int(self.made[group]), flow)

    def _counted(self, group: int) -> Part:
        part = self.part(group)
        self.turns[group] += 1
        self.iterations[part.clients] = part.last
        return part

    def _take_all(self) -> list[Turn]:
        """A moment at which all are ready: they do what Algorithm 1 does, and nobody waits."""
        algorithm, at = self.algorithm, self.ready
        parts = [self._counted(group) for group in range(len(self.groups))]
        clock = EventClock(algorithm.network, algorithm.uplink)
        clock.at = at.copy()
        inter = self.turns[0] % algorithm.schedule.tau2 == 0
        if inter:
            clock.exchange(algorithm.averager)
        self.waited = self.waited + clock.waited
        self.begun = clock.at + [self.seconds_down(group, part) for group, part in enumerate(parts)]
        turns = [
            Turn(group, self.server_of(group), part, float(at[group]), int(self.made[group]))
            for group, part in enumerate(parts)
        ]
        if inter:
            turns[-1] = replace(turns[-1], mixing=algorithm.averager)
        return turns

    def seconds_down(self, group: int, part: Part) -> float:
        """Until the slowest of those who come next has its server's model.

        Who took no part in the turn before gets the whole of it, whatever the codec.
        """
        own = self.groups[group]
        away = np.ones(self.algorithm.network.clients, dtype=bool)
        away[part.clients] = False
        seconds = self.algorithm.uplink.down(away, 0)
        if seconds is None:
            return 0.0
        coming = self.algorithm.participation.present(int(self.turns[group]))[own]
        return float(seconds[own][coming].max(initial=0.0))
