"""Where Algorithm 1 stops: exactly, on quadratics whose curvature differs between clients.

F_i(w) = (w - c_i)' A_i (w - c_i) / 2. With one A for all the mean of the models descends as if it
were alone, whatever the schedule. With several, a client's tau1 steps lead to

    w -> B_i w + (I - B_i) c_i,    B_i = (I - eta A_i)^tau1,

an affine map; so is their mean over a cluster, tau2 of those, and the exchange. A round that
changes nothing is the solution of a linear system, and its weighted mean is not the optimum of F:
its loss is the floor of the schedule, which no number of iterations gets below.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sdfeel.network import Network

__all__ = ["UnevenQuadratic", "random_uneven"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class UnevenQuadratic:
    """One problem: `curvatures` has an M x M matrix for each client, `centres` a row for each.

    least  the loss at the optimum; a real loss is not 0 there
    """

    network: Network
    curvatures: Array
    centres: Array
    start: Array
    least: float = 0.0

    @cached_property
    def optimum(self) -> Array:
        shares = self.network.shares.client
        pulls = np.einsum("c,cij,cj->i", shares, self.curvatures, self.centres)
        return np.asarray(np.linalg.solve(self.mean_curvature, pulls))

    @cached_property
    def mean_curvature(self) -> Array:
        return np.asarray(np.einsum("c,cij->ij", self.network.shares.client, self.curvatures))

    def loss(self, w: Array) -> float:
        off = w - self.optimum
        return float(self.least + off @ self.mean_curvature @ off / 2)

    def client_gradients(self, w: Array) -> Array:
        """Grad F_i for models of the clients (a row each), or for one model of all."""
        return np.asarray(np.einsum("cij,cj->ci", self.curvatures, w - self.centres))

    def floor(self, tau1: int, tau2: int, operator: Array, lr: float) -> float:
        """The loss at which a schedule comes to rest; `operator` is its averager's."""
        size = self.centres.shape[1]
        shares, eye = self.network.shares, np.eye(size)
        stays = np.stack([np.linalg.matrix_power(eye - lr * A, tau1) for A in self.curvatures])
        moves = np.einsum("cij,cj->ci", eye - stays, self.centres)
        turn = np.einsum("cd,cij->dij", shares.V, stays)
        push = np.einsum("cd,ci->di", shares.V, moves)
        turns, pushes = turn.copy(), push.copy()
        for _ in range(tau2 - 1):
            turns = np.einsum("dij,djk->dik", turn, turns)
            pushes = np.einsum("dij,dj->di", turn, pushes) + push
        servers = self.network.servers
        round_ = np.einsum("ed,eij->diej", operator, turns).reshape(servers * size, -1)
        pushed = np.einsum("ed,ei->di", operator, pushes).reshape(-1)
        still = np.linalg.solve(np.eye(servers * size) - round_, pushed).reshape(servers, size)
        return self.loss(shares.cluster @ still)


def random_uneven(
    network: Network,
    rng: np.random.Generator,
    *,
    size: int = 6,
    inside: float = 1.0,
    between: float = 1.0,
    condition: float = 10.0,
    least: float = 0.0,
) -> UnevenQuadratic:
    """Curvatures in random directions, between 1/condition and 1; two skews of the centres."""
    spectrum = np.geomspace(1 / condition, 1.0, size)
    bases = np.linalg.qr(rng.normal(size=(network.clients, size, size)))[0]
    curvatures = np.einsum("cij,j,ckj->cik", bases, spectrum, bases)
    centres = between * rng.normal(size=(network.servers, size))[network.clusters.server_of]
    centres = centres + inside * rng.normal(size=(network.clients, size))
    return UnevenQuadratic(network, curvatures, centres, 3 * rng.normal(size=size), least)
