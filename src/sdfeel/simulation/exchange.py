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

    known    the servers whose models a rank has in an exchange, in their order
    own      where its own servers are among them
    out      other rank -> places in `known` of what it is sent
    into     other rank -> the places that it fills
    product  whether an exchange is a product of matrices: a matter of the whole network
    """

    known: tuple[int, ...]
    own: slice
    out: dict[int, list[int]]
    into: dict[int, slice]
    product: bool

    @classmethod
    def find(cls, network: Network, placement: Placement, rank: int) -> Routes:
        mine = placement.servers[rank]
        near = [set(network.neighbours(server)) for server in range(network.servers)]
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
        out = {other: [known.index(j) for j in servers] for other, servers in sent.items()}
        filled = {other: places for other, places in into.items() if other in sent}
        return cls(tuple(known), own, out, filled, network.servers <= FEW)


class Exchanges:
    """Exchanges one after the other, in float64."""

    def __init__(self, routes: Routes, ranks: Ranks, models: Tensor) -> None:
        self._routes, self._ranks = routes, ranks
        shape = len(routes.known), models.shape[1]
        self._now = torch.empty(shape, dtype=torch.float64, device=models.device)
        self._now[routes.own] = models
        self._next = torch.empty_like(self._now)

    @property
    def models(self) -> Tensor:
        return self._now[self._routes.own]

    def step(self, P: NDArray[np.float64]) -> None:
        """One exchange: every server takes the models of its neighbours as they were before it."""
        routes = self._routes
        out = [(rank, self._now[places]) for rank, places in routes.out.items()]
        into = [(rank, self._now[places]) for rank, places in routes.into.items()]
        self._ranks.exchange(out, into)
        weights = P[list(routes.known)][:, routes.known[routes.own]].T
        if routes.product:
            own = torch.from_numpy(np.ascontiguousarray(weights)).to(self._now.device)
            torch.mm(own, self._now, out=self._next[routes.own])
        else:
            self._mix(weights, range(*routes.own.indices(len(routes.known))))
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
