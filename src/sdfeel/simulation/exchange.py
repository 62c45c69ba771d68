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

from sdfeel.network import Network
from sdfeel.simulation.ranks import Placement, Ranks

__all__ = ["Exchanges", "Routes"]


@dataclass(frozen=True)
class Routes:
    """Who needs which models in an exchange between neighbours: the same in all of them.

    known   the servers whose models a rank has in an exchange: its own, then what comes
    out     other rank -> places in `known` of what it is sent
    into    other rank -> the places that it fills
    inside  own servers without neighbours elsewhere; border: the others
    """

    known: tuple[int, ...]
    out: dict[int, list[int]]
    into: dict[int, slice]
    inside: tuple[int, ...]
    border: tuple[int, ...]

    @classmethod
    def find(cls, network: Network, placement: Placement, rank: int) -> Routes:
        own = placement.servers[rank]
        near = [set(network.neighbours(server)) for server in range(network.servers)]
        known, out, into = list(own), {}, {}
        for other, theirs in enumerate(placement.servers):
            if other == rank:
                continue
            sent = [j for j in own if not near[j].isdisjoint(theirs)]
            coming = [j for j in theirs if not near[j].isdisjoint(own)]
            if coming:  # a link has two ends: then something is sent too
                out[other] = [own.index(j) for j in sent]
                into[other] = slice(len(known), len(known) + len(coming))
                known += coming
        inside = tuple(d for d in own if near[d] <= set(own))
        border = tuple(d for d in own if d not in inside)
        return cls(tuple(known), out, into, inside, border)


class Exchanges:
    """Eq. (5) for the servers of one rank, again and again, in float64."""

    def __init__(self, routes: Routes, ranks: Ranks, models: Tensor) -> None:
        self._routes, self._ranks = routes, ranks
        self._own = len(models)
        self._place = {server: place for place, server in enumerate(routes.known)}
        shape = len(routes.known), models.shape[1]
        self._now = torch.empty(shape, dtype=torch.float64, device=models.device)
        self._now[: self._own] = models
        self._next = torch.empty_like(self._now)

    @property
    def models(self) -> Tensor:
        return self._now[: self._own]

    def step(self, P: NDArray[np.float64]) -> None:
        """While messages travel, the servers that wait for none are mixed."""
        routes = self._routes
        out = [(rank, self._now[places]) for rank, places in routes.out.items()]
        into = [(rank, self._now[places]) for rank, places in routes.into.items()]
        with self._ranks.exchanging(out, into):
            self._mix(P, routes.inside)
        self._mix(P, routes.border)
        self._now, self._next = self._next, self._now

    def _mix(self, P: NDArray[np.float64], servers: Sequence[int]) -> None:
        """Sums in server order, so that the number of ranks does not show in the last bits."""
        for d in servers:
            mixed = self._next[self._place[d]]
            first, *others = (int(j) for j in np.flatnonzero(P[:, d]))
            torch.mul(self._now[self._place[first]], float(P[first, d]), out=mixed)
            for j in others:
                mixed.add_(self._now[self._place[j]], alpha=float(P[j, d]))
