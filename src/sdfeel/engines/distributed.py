"""The distributed engine: clusters on ranks. Only exchanges between servers cross ranks.

Local updates and averaging inside a cluster are another engine's, on the clusters of this rank. In
an exchange a rank sends the models of its servers to just those ranks that hold a neighbour of
them. Sums are taken in server order whatever the number of ranks, so 1, 2 and 4 ranks give the
same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.engines.ranks import Placement, Ranks
from sdfeel.network import Averager
from sdfeel.training.engine import AveragingRule, Engine, EngineState, Mask, Problem

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
        models = self._inner.server_models().double()
        if averager.route == "neighbours":
            for number in range(averager.exchanges):
                models = self._exchange(averager.exchange(number), models)
        else:
            shares = torch.from_numpy(averager.shares[list(self._servers)])
            mean = self._ranks.chain(shares[:, None] * models)
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

    def _exchange(self, P: NDArray[np.float64], models: Tensor) -> Tensor:
        """Eq. (5) for the servers of this rank; `models` are theirs before, in float64."""
        me = self._ranks.rank
        known = dict(zip(self._servers, models, strict=True))
        out, into = [], []
        for other in range(self._ranks.size):
            if other == me:
                continue
            theirs = self._placement.servers[other]
            wanted = [j for j in self._servers if P[j, list(theirs)].any()]
            coming = [j for j in theirs if P[j, list(self._servers)].any()]
            if wanted:
                out.append((other, torch.stack([known[j] for j in wanted])))
            if coming:
                room = torch.empty(len(coming), models.shape[1], dtype=models.dtype)
                into.append((other, room))
                known |= dict(zip(coming, room, strict=True))
        self._ranks.exchange(out, into)
        return torch.stack([self._mixed(P[:, d], known) for d in self._servers])

    @staticmethod
    def _mixed(weights: NDArray[np.float64], models: dict[int, Tensor]) -> Tensor:
        senders = np.flatnonzero(weights)
        mixed = float(weights[senders[0]]) * models[int(senders[0])]
        for j in senders[1:]:
            mixed.add_(models[int(j)], alpha=float(weights[j]))
        return mixed
