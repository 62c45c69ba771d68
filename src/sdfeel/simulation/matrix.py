"""What the engines that keep all models in two matrices share: aggregation and state."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.network import Averager
from sdfeel.simulation.engines.engine import AveragingRule, Engine, EngineState, Problem

__all__ = ["MatrixEngine"]

# A few exchanges over a sparse graph are a sparse operator: up to this share of non-zeros it is
# applied as one, to so many columns at a time that all servers' part of them stays in the cache.
SPARSE = 0.25
COLUMNS = 1024


class MatrixEngine(Engine):
    """W (C x M, a client a row) and Y (D x M, a server a row)."""

    def __init__(self, problem: Problem, start: Tensor) -> None:
        self.problem = problem
        clusters = problem.network.clusters
        self._by_server = np.concatenate([np.array(members) for members in clusters.members])
        self._server_of = torch.from_numpy(clusters.server_of).to(problem.device)
        self.W = start.to(problem.device).repeat(clusters.clients, 1)
        self.Y = start.to(problem.device).repeat(clusters.servers, 1)

    def intra(self, weights: NDArray[np.float64], rule: AveragingRule | None = None) -> None:
        self.Y = self._cluster_means(weights, rule)

    def inter(self, averager: Averager) -> None:
        if averager.contraction == 0.0:
            mean = torch.from_numpy(averager.shares).to(self.Y.device) @ self.Y.double()
            self.Y = mean.to(self.Y.dtype).repeat(len(self.Y), 1)
        else:
            self.Y = _mixed(averager.operator, self.Y)

    def broadcast(self) -> None:
        torch.index_select(self.Y, 0, self._server_of, out=self.W)

    def server_models(self) -> Tensor:
        return self.Y.clone()

    def cluster_models(self, weights: NDArray[np.float64] | None) -> Tensor:
        return self.Y if weights is None else self._cluster_means(weights, None)

    def mean_model(self, weights: NDArray[np.float64] | None) -> Tensor:
        models = self.cluster_models(weights)
        shares = torch.from_numpy(self.problem.network.shares.cluster).to(models.device)
        return (shares @ models.double()).to(models.dtype)

    def state(self, with_clients: bool) -> EngineState:
        return EngineState(self.Y.clone(), self.W.clone() if with_clients else None)

    def restore(self, state: EngineState) -> None:
        self.Y = state.servers.to(self.Y)
        if state.clients is None:
            self.broadcast()
        else:
            self.W.copy_(state.clients)

    def _cluster_means(self, weights: NDArray[np.float64], rule: AveragingRule | None) -> Tensor:
        """Sums are taken in client order: another order would change the last bits."""
        if rule is None:
            return self._weighted_means(weights)
        means = self.Y.clone()
        for server, members in enumerate(self.problem.network.clusters.members):
            present = [i for i in members if weights[i] > 0]
            if present:
                share = torch.from_numpy(weights[present]).to(self.W)
                means[server] = rule(self.W[present], share, self.Y[server])
        return means

    def _weighted_means(self, weights: NDArray[np.float64]) -> Tensor:
        """Eq. (3) as a product with a sparse D x C matrix, which adds up row by row in order."""
        order = self._by_server[weights[self._by_server] > 0]
        server = self.problem.network.clusters.server_of[order]
        shares = torch.sparse_coo_tensor(
            torch.from_numpy(np.stack([server, order])),
            torch.from_numpy(weights[order]),
            (len(self.Y), len(self.W)),
            dtype=self.W.dtype,
            device=self.W.device,
            is_coalesced=True,
            check_invariants=False,
        )
        means: Tensor = torch.sparse.mm(shares, self.W)
        kept = np.setdiff1d(np.arange(len(self.Y)), server)
        means[kept] = self.Y[kept]
        return means


def _mixed(operator: NDArray[np.float64], models: Tensor) -> Tensor:
    """Models (rows) after the operator, which acts on columns from the right; in float64."""
    applied = torch.from_numpy(operator).T.to(models.device)
    if np.count_nonzero(operator) > SPARSE * operator.size or models.device.type != "cpu":
        return (applied @ models.double()).to(models.dtype)
    pairs = applied.to_sparse()
    mixed = torch.empty_like(models)
    for start in range(0, models.shape[1], COLUMNS):
        block = slice(start, start + COLUMNS)
        mixed[:, block] = torch.sparse.mm(pairs, models[:, block].double())
    return mixed
