"""Eq. (5) for the servers of one rank. Only models between neighbours cross ranks.

A rank sends the models of its servers to just those ranks that hold a neighbour of them. Sums are
taken in server order, so any number of ranks gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.network import Averager, Network
from sdfeel.simulation.messages import Messages
from sdfeel.simulation.ranks import Placement, Ranks

__all__ = ["Exchanges", "Routes", "mixed"]

# Up to so many servers an exchange is one product of matrices; beyond, most weights are zero.
FEW = 16


@dataclass(frozen=True)
class Routes:
    """Who needs which models in an exchange between neighbours: the same in all of them.

    known    the servers that a rank has a row for in an exchange, in their order
    own      where its own servers are among them
    out      other rank -> places in `known` of what it is sent
    into     other rank -> the places that it fills
    product  whether an exchange is a product of matrices: a matter of the whole network. Then every
             rank has a row for every server, zero where it is far: a product of other sizes would
             be added up in another order
    """

    known: tuple[int, ...]
    own: slice
    out: dict[int, slice | list[int]]
    into: dict[int, slice]
    product: bool

    @classmethod
    def find(cls, network: Network, placement: Placement, rank: int) -> Routes:
        mine = placement.servers[rank]
        near = [set(network.neighbours(server)) for server in range(network.servers)]
        if network.servers <= FEW:
            return cls._with_all(near, placement, rank)
        known: list[int] = []
        into: dict[int, slice] = {}
        sent: dict[int, list[int]] = {}
        for other, theirs in enumerate(placement.servers):
            coming = mine if other == rank else [j for j in theirs if not near[j].isdisjoint(mine)]
            into[other] = slice(len(known), len(known) + len(coming))
            known += coming
            if other != rank and coming:  # a link has two ends: then something is sent too
                sent[other] = [j for j in mine if not near[j].isdisjoint(theirs)]
        own = into.pop(rank)
        out: dict[int, slice | list[int]] = {
            other: [known.index(j) for j in servers] for other, servers in sent.items()
        }
        filled = {other: places for other, places in into.items() if other in sent}
        return cls(tuple(known), own, out, filled, False)

    @classmethod
    def _with_all(cls, near: Sequence[set[int]], placement: Placement, rank: int) -> Routes:
        """A place is a server's number; what lies between two that are sent is sent along."""
        mine = placement.servers[rank]
        out: dict[int, slice | list[int]] = {}
        into: dict[int, slice] = {}
        for other, theirs in enumerate(placement.servers):
            coming = [j for j in theirs if not near[j].isdisjoint(mine)]
            if other != rank and coming:
                going = [j for j in mine if not near[j].isdisjoint(theirs)]
                out[other] = slice(going[0], going[-1] + 1)
                into[other] = slice(coming[0], coming[-1] + 1)
        return cls(tuple(range(len(near))), slice(mine[0], mine[-1] + 1), out, into, True)

    @property
    def strange(self) -> list[int]:
        """Places of the servers that a rank never hears of."""
        slices = [self.own, *self.into.values()]
        there = {place for part in slices for place in range(part.start, part.stop)}
        return [place for place in range(len(self.known)) if place not in there]


class Exchanges:
    """Exchanges one after the other, in float64."""

    def __init__(self, routes: Routes, ranks: Ranks, models: Tensor) -> None:
        self._routes, self._ranks = routes, ranks
        shape = len(routes.known), models.shape[1]
        self._now = torch.zeros(shape, dtype=torch.float64, device=models.device)
        self._now[routes.own] = models
        self._next = torch.empty_like(self._now)
        self._strange = routes.strange if routes.product else []

    @property
    def models(self) -> Tensor:
        return self._now[self._routes.own]

    def step(self, P: NDArray[np.float64]) -> None:
        """One exchange: every server takes the models of its neighbours as they were before it."""
        routes = self._routes
        out = [(rank, self._now[places]) for rank, places in routes.out.items()]
        into = [(rank, self._now[places]) for rank, places in routes.into.items()]
        self._ranks.exchange(out, into)
        if routes.product:
            weights = torch.from_numpy(np.ascontiguousarray(P.T)).to(self._now.device)
            torch.mm(weights, self._now, out=self._next)
            self._next[self._strange] = 0.0  # what comes of them there is nobody's model
        else:
            own = P[list(routes.known)][:, routes.known[routes.own]].T
            self._mix(own, range(*routes.own.indices(len(routes.known))))
        self._now, self._next = self._next, self._now

    def _mix(self, weights: NDArray[np.float64], places: Sequence[int]) -> None:
        for row, place in zip(weights, places, strict=True):
            mixed = self._next[place]
            first, *others = (int(j) for j in np.flatnonzero(row))
            torch.mul(self._now[first], float(row[first]), out=mixed)
            for j in others:
                mixed.add_(self._now[j], alpha=float(row[j]))


def mixed(
    averager: Averager, models: Tensor, routes: Routes, ranks: Ranks, messages: Messages, k: int
) -> Tensor:
    """Eq. (5) for the servers of a rank: one exchange after the other.

    Where the averager reaches the weighted mean it is taken at once: no rounding is enlarged.
    """
    if not messages.swapped_as_they_are:
        return _mixed_by_messages(averager, models, routes, ranks, messages, k)
    if averager.contraction == 0.0:
        return _mean(averager, models, routes, ranks).to(models.dtype)
    exchanges = Exchanges(routes, ranks, models)
    for number in range(averager.exchanges):
        exchanges.step(averager.exchange(number))
    return exchanges.models.to(models.dtype)


def _mixed_by_messages(
    averager: Averager, models: Tensor, routes: Routes, ranks: Ranks, messages: Messages, k: int
) -> Tensor:
    """With x what neighbours hold of the models: w <- w + (x P - x), exchange by exchange.

    Both ends of a link apply the same difference of x, with opposite sign and over their weights,
    so the weighted mean stays where it is whatever the codec rounds off.
    """
    found = models.double()
    for number in range(averager.exchanges):
        x = messages.between(found.to(models.dtype), k, number)
        if averager.route == "neighbours":
            exchanges = Exchanges(routes, ranks, x)
            exchanges.step(averager.exchange(number))
            after = exchanges.models
        else:
            after = _mean(averager, x, routes, ranks)
        found = found + (after - x.double())
    return found.to(models.dtype)


def _mean(averager: Averager, models: Tensor, routes: Routes, ranks: Ranks) -> Tensor:
    """The weighted mean of all servers, for each of those held here."""
    own = torch.from_numpy(averager.shares[list(routes.known[routes.own])])
    mean = ranks.chain(own[:, None].to(models.device) * models.double())
    return mean.repeat(len(models), 1)
