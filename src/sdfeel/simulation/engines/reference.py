"""The reference engine: plain loops, close to Algorithm 1 line by line. Slow, and easy to trust."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.network import Averager
from sdfeel.simulation.engines.engine import AveragingRule, Engine, EngineState, Mask, Problem

__all__ = ["ReferenceEngine", "sgd_step"]


def sgd_step(problem: Problem, model: torch.nn.Module, client: int, k: int) -> float:
    """One mini-batch SGD step of one client, eq. (2): w <- w - eta g(xi; w). Returns the loss."""
    rows = torch.from_numpy(problem.batch(client, k)).to(problem.device)
    problem.seed_model(client, k)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss = problem.loss(model(problem.data.inputs[rows]), problem.data.targets[rows])
    gradients = torch.autograd.grad(loss, trained, allow_unused=True)
    with torch.no_grad():
        for parameter, gradient in zip(trained, gradients, strict=True):
            if gradient is not None:
                parameter.sub_(gradient, alpha=problem.lr)
    return float(loss.detach())


class ReferenceEngine(Engine):
    """One vector per client and per server, in lists; one model that visits them in turn."""

    name = "reference"

    def __init__(self, problem: Problem, start: Tensor) -> None:
        self.problem = problem
        self._model = copy.deepcopy(problem.model).to(problem.device)
        self._clusters = problem.network.clusters
        self._servers = [start.clone() for _ in range(self._clusters.servers)]
        self._clients = [start.clone() for _ in range(self._clusters.clients)]

    def local_updates(self, first: int, last: int, present: Mask) -> NDArray[np.float64]:
        clients = np.flatnonzero(present)
        losses = np.empty((len(clients), last - first + 1))
        layout = self.problem.layout
        self._model.train()
        with torch.random.fork_rng(devices=[]):
            for row, client in enumerate(clients):
                layout.load(self._model, self._clients[client])
                for column, k in enumerate(range(first, last + 1)):
                    losses[row, column] = sgd_step(self.problem, self._model, int(client), k)
                self._clients[client] = layout.vector(self._model)
        return losses

    def intra(self, weights: NDArray[np.float64], rule: AveragingRule | None = None) -> None:
        self._servers = self._cluster_means(weights, rule)

    def inter(self, averager: Averager) -> None:
        for number in range(averager.exchanges):
            P = averager.exchange(number)
            before = [model.double() for model in self._servers]
            for d in range(len(before)):
                senders = np.flatnonzero(P[:, d])
                mixed = sum(float(P[j, d]) * before[j] for j in senders)
                self._servers[d] = torch.as_tensor(mixed).to(self.problem.layout.dtype)

    def broadcast(self) -> None:
        for client, server in enumerate(self._clusters.server_of):
            self._clients[client] = self._servers[server].clone()

    def server_models(self) -> Tensor:
        return torch.stack(self._servers)

    def cluster_models(self, weights: NDArray[np.float64] | None) -> Tensor:
        return torch.stack(self._servers if weights is None else self._cluster_means(weights, None))

    def mean_model(self, weights: NDArray[np.float64] | None) -> Tensor:
        models = self.cluster_models(weights)
        shares = self.problem.network.shares.cluster
        mean = torch.zeros(self.problem.layout.size, dtype=torch.float64)
        for share, model in zip(shares, models, strict=True):
            mean += float(share) * model.double().cpu()
        return mean.to(models[0])

    def predict(self, model: Tensor, inputs: Tensor) -> Tensor:
        self.problem.layout.load(self._model, model)
        self._model.eval()
        with torch.no_grad():
            return torch.cat([self._model(part) for part in torch.split(inputs, 500)])

    def state(self, with_clients: bool) -> EngineState:
        clients = torch.stack(self._clients) if with_clients else None
        return EngineState(self.server_models(), clients)

    def restore(self, state: EngineState) -> None:
        self._servers = [model.clone() for model in state.servers.to(self.problem.device)]
        if state.clients is None:
            self.broadcast()
        else:
            self._clients = [model.clone() for model in state.clients.to(self.problem.device)]

    def _cluster_means(
        self, weights: NDArray[np.float64], rule: AveragingRule | None
    ) -> list[Tensor]:
        """Sums are taken in client order: another order would change the last bits."""
        means = list(self._servers)
        for server, members in enumerate(self._clusters.members):
            present = [i for i in members if weights[i] > 0]
            if present and rule is not None:
                models = torch.stack([self._clients[i] for i in present])
                share = torch.from_numpy(weights[present]).to(models)
                means[server] = rule(models, share, self._servers[server])
            elif present:
                means[server] = torch.zeros_like(self._servers[server])
                for i in present:
                    means[server] += float(weights[i]) * self._clients[i]
        return means
