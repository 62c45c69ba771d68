"""The distributed engine: clusters on ranks. Only exchanges between servers cross ranks.

Local updates and averaging inside a cluster are another engine's, on the clusters of this rank. In
an exchange a rank sends the models of its servers to just those ranks that hold a neighbour of
them. Sums are taken in server order whatever the number of ranks, so 1, 2 and 4 ranks give the
same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.network import Averager, Network
from sdfeel.simulation.engines.engine import AveragingRule, Engine, EngineState, Mask, Problem
from sdfeel.simulation.ranks import Placement, Ranks

__all__ = ["DistributedEngine"]


class DistributedEngine(Engine):
    """One per rank, around the engine of the rank's own clusters.

    problem  with the whole network; its data is that of this rank's clients only
    inner    the engine of the rank's part
    """

    def __init__(self, problem: Problem, ranks: Ranks, placement: Placement, inner: Engine) -> None:
        self.problem = problem
        self._inner = inner
        self._ranks = ranks
        self._placement = placement
        self._servers = placement.servers[ranks.rank]
        self._clients = np.array(placement.clients[ranks.rank])
        self._routes = _Routes.find(problem.network, placement, ranks.rank)
        self.name = self._inner.name

    @property
    def leads(self) -> bool:
        return self._ranks.leads

    @property
    def clients(self) -> NDArray[np.int64]:
        return self._clients

    def agree(self, numbers: Sequence[int]) -> list[int]:
        told = self._ranks.broadcast(torch.tensor(list(numbers), dtype=torch.int64))
        return [int(number) for number in told]

    def total(self, number: float) -> float:
        return self._ranks.total(number)

    def local_updates(self, first: int, last: int, present: Mask) -> NDArray[np.float64]:
        return self._inner.local_updates(first, last, present[self._clients])

    def intra(self, weights: NDArray[np.float64], rule: AveragingRule | None = None) -> None:
        self._inner.intra(weights[self._clients], rule)

    def inter(self, averager: Averager) -> None:
        models = self._inner.server_models()
        if averager.route == "neighbours":
            exchanges = _Exchanges(self._routes, self._ranks, models)
            for number in range(averager.exchanges):
                exchanges.step(averager.exchange(number))
            models = exchanges.models
        else:
            shares = torch.from_numpy(averager.shares[list(self._servers)])
            mean = self._ranks.chain(shares[:, None] * models.double())
            models = mean.expand_as(models)
        self._inner.restore(EngineState(models.to(self.problem.layout.dtype)))

    def broadcast(self) -> None:
        self._inner.broadcast()

    def server_models(self) -> Tensor:
        rows = [len(servers) for servers in self._placement.servers]
        return self._ranks.gather(self._inner.server_models(), rows)

    def mean_model(self, weights: NDArray[np.float64] | None) -> Tensor:
        own = self._inner.cluster_models(None if weights is None else weights[self._clients])
        shares = torch.from_numpy(self.problem.network.shares.cluster[list(self._servers)])
        return self._ranks.chain(shares[:, None] * own.double()).to(self.problem.layout.dtype)

    def cluster_models(self, weights: NDArray[np.float64] | None) -> Tensor:
        return self._inner.cluster_models(weights)

    def predict(self, model: Tensor, inputs: Tensor) -> Tensor:
        return self._inner.predict(model, inputs)

    def state(self, with_clients: bool) -> EngineState:
        """At the first rank the whole state, clients in the order of their numbers."""
        servers = self.server_models()
        if not with_clients:
            return EngineState(servers)
        own = self._inner.state(with_clients=True).clients
        assert own is not None  # noqa: S101 - it was asked for
        rows = [len(clients) for clients in self._placement.clients]
        gathered = self._ranks.gather(own, rows)
        if not self.leads:
            return EngineState(servers, gathered)
        order = np.concatenate([np.array(clients) for clients in self._placement.clients])
        clients = torch.empty_like(gathered)
        clients[torch.from_numpy(order)] = gathered
        return EngineState(servers, clients)

    def restore(self, state: EngineState) -> None:
        """Each rank takes its part of the whole state."""
        mine = torch.from_numpy(self._clients)
        clients = None if state.clients is None else state.clients[mine]
        self._inner.restore(EngineState(state.servers[list(self._servers)], clients))

    def close(self) -> None:
        self._inner.close()


@dataclass(frozen=True)
class _Routes:
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
    def find(cls, network: Network, placement: Placement, rank: int) -> _Routes:
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


class _Exchanges:
    """Eq. (5) for the servers of one rank, again and again, in float64."""

    def __init__(self, routes: _Routes, ranks: Ranks, models: Tensor) -> None:
        self._routes, self._ranks = routes, ranks
        self._own = len(models)
        self._place = {server: place for place, server in enumerate(routes.known)}
        self._now = torch.empty(len(routes.known), models.shape[1], dtype=torch.float64)
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
