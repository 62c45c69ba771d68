"""The engine: what carries out the steps of Algorithm 1. The loop knows nothing else of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sdfeel.algorithm.randomness import draw_batches
from sdfeel.data.clients import ClientData
from sdfeel.network import Averager, Network
from sdfeel.simulation.parameters import ParameterLayout

__all__ = ["AveragingRule", "Engine", "EngineState", "Loss", "Mask", "Problem"]

Loss = Callable[[Tensor, Tensor], Tensor]

# From the models of a cluster's present clients (n x M), their weights (n, sum 1) and the server's
# own model before (M): its model after. None stands for the weighted mean of eq. (3).
AveragingRule = Callable[[Tensor, Tensor, Tensor], Tensor]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Problem:
    """What is trained, on what, and how: everything an engine needs to begin.

    `loss(outputs, targets)` is the mean over the batch. `network` is the scheme's.
    """

    model: nn.Module
    layout: ParameterLayout
    loss: Loss
    data: ClientData
    network: Network
    lr: float
    batch_size: int
    seed: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    # The numbers that clients draw their batches by, where `data` holds only some of all clients.
    held: NDArray[np.int64] | None = None

    @property
    def client_ids(self) -> NDArray[np.int64]:
        """The number of each client of `data` among all clients."""
        return np.arange(self.data.clients) if self.held is None else self.held

    def seed_model(self, client: int, k: int) -> None:
        """What is random inside the model (dropout) is a function of (seed, client, k) as well."""
        number = hash((self.seed, int(self.client_ids[client]), k))
        if self.device.type == "cpu":  # torch.manual_seed looks for GPUs first, which takes longer
            torch.default_generator.manual_seed(number)
        else:
            torch.manual_seed(number)

    def batch(self, client: int, k: int) -> NDArray[np.int64]:
        """Rows of the data store that client i uses at iteration k: xi_k^(i).

        A batch size at or above the client's data means its full gradient.
        """
        start, end = int(self.data.offsets[client]), int(self.data.offsets[client + 1])
        if end - start <= self.batch_size:
            return np.arange(start, end)
        drawn = draw_batches(
            self.seed,
            self.client_ids[[client]],
            np.array([end - start]),
            np.array([k]),
            self.batch_size,
        )
        rows: NDArray[np.int64] = start + drawn[0, 0]
        return rows


@dataclass(frozen=True)
class EngineState:
    """All that training needs to go on from: the servers' models (D x M), and the clients' (C x M)
    in the middle of an upload period; after a broadcast each client holds its server's.
    """

    servers: Tensor
    clients: Tensor | None = None


class Engine(ABC):
    """Holds every model and changes them. Clients and servers are numbered as in the network."""

    name: str
    problem: Problem

    # The next four only say something new where a run is spread over several processes (ranks).

    @property
    def leads(self) -> bool:
        """Whether this process evaluates and records; with several ranks only the first does."""
        return True

    @property
    def clients(self) -> NDArray[np.int64]:
        """The clients whose local updates this process carries out."""
        return np.arange(self.problem.network.clients)

    def agree(self, numbers: Sequence[int]) -> list[int]:
        """What the leading process says these numbers are."""
        return list(numbers)

    def total(self, number: float) -> float:
        """The sum of a number over all processes."""
        return number

    @abstractmethod
    def local_updates(self, first: int, last: int, present: Mask) -> NDArray[np.float64]:
        """Eq. (2) for k = first..last at every present client.

        Returns the mini-batch losses, (present clients held here, in order) x (iterations), each
        taken before its update. A loss that is not finite comes back as it is.
        """

    @abstractmethod
    def intra(self, weights: NDArray[np.float64], rule: AveragingRule | None = None) -> None:
        """Eq. (3): each server takes the mean of its clients with these weights (m-hat over those
        present), or what `rule` makes of them. A server without a present client keeps its model.
        """

    @abstractmethod
    def inter(self, averager: Averager) -> None:
        """Eq. (5): all exchanges of the averager, each with the models of the one before."""

    @abstractmethod
    def broadcast(self) -> None:
        """Eq. (4): every client takes the model of its server."""

    @abstractmethod
    def server_models(self) -> Tensor:
        """D x M: the servers' models as they are."""

    @abstractmethod
    def cluster_models(self, weights: NDArray[np.float64] | None) -> Tensor:
        """Model of every cluster: the mean of its clients with `weights` or, with None (after a
        broadcast), its server's. Changes nothing.
        """

    @abstractmethod
    def mean_model(self, weights: NDArray[np.float64] | None) -> Tensor:
        """u_k = sum of m-tilde_d x the model of cluster d, as `cluster_models` gives it."""

    @abstractmethod
    def predict(self, model: Tensor, inputs: Tensor) -> Tensor:
        """Outputs of a model on inputs, in evaluation mode."""

    @abstractmethod
    def state(self, with_clients: bool) -> EngineState:
        """A copy of all models; clients' only if asked for."""

    @abstractmethod
    def restore(self, state: EngineState) -> None:
        """Go on from a state; without clients' models they take their server's."""

    def close(self) -> None:  # noqa: B027 - most engines hold nothing that must be let go
        """Let go of threads and connections."""
