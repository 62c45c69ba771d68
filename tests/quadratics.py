"""Random quadratic problems on which every constant of Theorem 1 is known exactly.

F_i(w) = (w - c_i)' A (w - c_i) / 2 with one A for all clients: then grad F_i - grad F =
A (c - c_i) does not depend on w, so that kappa exists (Assumption 1), L is the largest eigenvalue
of A, and Delta is a formula. Mini-batch noise is Gaussian with E||.||^2 = sigma^2.

`simulate` carries out Algorithm 1 by the recursion of `worlds`, independently of the engines that
train networks. What it records at k = 0 .. K-1 are the models before each step: the average of
Theorem 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from worlds import Weights, recursion

from sdfeel.network import Network
from sdfeel.theory.bound import Constants

__all__ = ["Quadratic", "Trace", "random_quadratic", "simulate"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Quadratic:
    """One problem: A is M x M, the clients' optima are the columns of `centres`."""

    network: Network
    A: Array
    centres: Array
    variance: float
    start: Array

    @cached_property
    def optimum(self) -> Array:
        """The minimum of F: the m-weighted mean of the clients' optima."""
        mean: Array = self.centres @ self.network.shares.client
        return mean

    @cached_property
    def smoothness(self) -> float:
        return float(np.linalg.eigvalsh(self.A)[-1])

    def gap(self, w: Array) -> Array:
        """F(w) - F(w*) for every column of w."""
        off = w - self.optimum[:, None]
        gap: Array = 0.5 * np.sum(off * (self.A @ off), axis=-2)
        return gap

    @cached_property
    def drifts(self) -> Array:
        """Grad F_i - grad F for every client, M x C: the same at every w."""
        return self.A @ (self.optimum[:, None] - self.centres)

    @cached_property
    def kappa_split(self) -> tuple[float, float]:
        """kappa^2 as m-weighted means: inside clusters and between them; they add up."""
        shares = self.network.shares
        of_cluster = (self.drifts @ shares.V)[:, self.network.clusters.server_of]
        inside = np.sum(shares.client * np.sum((self.drifts - of_cluster) ** 2, axis=0))
        between = np.sum(shares.client * np.sum(of_cluster**2, axis=0))
        return float(inside), float(between)

    def constants(self, worst: bool = True) -> Constants:
        """For Theorem 1; kappa^2 the maximum over clients (Assumption 1) or the weighted mean."""
        kappa = float(np.sum(self.drifts**2, axis=0).max()) if worst else sum(self.kappa_split)
        gap = float(self.gap(self.start[:, None])[0])
        return Constants(self.smoothness, self.variance, kappa, gap)


def random_quadratic(
    network: Network,
    rng: np.random.Generator,
    *,
    dimension: int = 5,
    inside: float = 1.0,
    between: float = 1.0,
    variance: float = 1.0,
    condition: float = 5.0,
) -> Quadratic:
    """Eigenvalues of A between 1/condition and 1; `inside` and `between` scale the two skews."""
    basis, _ = np.linalg.qr(rng.normal(size=(dimension, dimension)))
    A = basis @ np.diag(np.geomspace(1 / condition, 1.0, dimension)) @ basis.T
    per_cluster = rng.normal(size=(dimension, network.servers)) * between
    centres = per_cluster[:, network.clusters.server_of]
    per_client = rng.normal(size=(dimension, network.clients)) * inside
    per_client -= (per_client @ network.shares.V)[:, network.clusters.server_of]
    return Quadratic(network, A, centres + per_client, variance, rng.normal(size=dimension) * 3)


@dataclass(frozen=True)
class Trace:
    """Means over the repeats for the models before step k, k = 0 .. K-1.

    gradient   ||grad F(u_k)||^2: what Theorem 1 bounds
    loss       F(u_k) - F(w*)
    deviation  ||W_k (I - M)||_M^2 = sum_i m_i ||w_i - u||^2: what Lemma 2 bounds
    servers    the same between servers only: sum_d m-tilde_d ||w_d - u||^2
    mean_step  J_k = ||sum_i m_i grad F_i(w_i)||^2
    """

    gradient: Array
    loss: Array
    deviation: Array
    servers: Array
    mean_step: Array


def simulate(
    problem: Quadratic,
    operator: Array,
    *,
    tau1: int,
    tau2: int,
    lr: float,
    iterations: int,
    rng: np.random.Generator,
    repeats: int = 8,
    beta: float = 1.0,
) -> Trace:
    """Algorithm 1 with the D x D `operator` of an averager, `repeats` times side by side.

    Clients take part in a period with probability `beta`; absent ones hold their server's model.
    """
    weights = Weights(problem.network, problem.network.shares.samples)
    dimension, clients = problem.centres.shape
    spread = np.sqrt(problem.variance / dimension)
    records: list[tuple[float, ...]] = []
    present = np.ones((repeats, clients))
    V = weights.V

    def gradient(k: int, W: Array) -> Array:
        nonlocal present, V
        if (k - 1) % tau1 == 0 and beta < 1:
            present = (rng.random((repeats, clients)) < beta).astype(float)
            V = _weights_of(present, weights)
        records.append(_record(problem, W, V, present, weights))
        noise = spread * rng.normal(size=W.shape)
        return (problem.A @ (W - problem.centres) + noise) * present[:, None, :]

    def transition(k: int) -> Array:
        if k % tau1:
            return np.eye(clients)
        mixed = V if k % (tau1 * tau2) else V @ operator
        return np.asarray(mixed @ weights.B)

    start = np.repeat(problem.start[:, None], clients, axis=1)[None].repeat(repeats, axis=0)
    for _ in islice(recursion(start, gradient, transition, lr), iterations):
        pass
    return Trace(*np.array(records).T)


def _weights_of(present: Array, weights: Weights) -> Array:
    """Eq. (3) over those present; an empty cluster keeps the model that its clients hold."""
    shares = present[:, :, None] * weights.V
    totals = shares.sum(axis=1, keepdims=True)
    return np.where(totals > 0, shares / np.where(totals > 0, totals, 1), weights.V)


def _record(
    problem: Quadratic, W: Array, V: Array, present: Array, weights: Weights
) -> tuple[float, ...]:
    of_server = W @ V
    u = (of_server @ weights.mt)[:, :, None]
    models = np.where(present[:, None, :] > 0, W, of_server @ weights.B)
    steps = (problem.A @ (models - problem.centres)) @ weights.m
    return (
        float(np.mean(np.sum((problem.A @ (u - problem.optimum[:, None])) ** 2, axis=(1, 2)))),
        float(np.mean(problem.gap(u))),
        float(np.mean(np.sum((models - u) ** 2 * weights.m, axis=(1, 2)))),
        float(np.mean(np.sum((of_server - u) ** 2 * weights.mt, axis=(1, 2)))),
        float(np.mean(np.sum(steps**2, axis=1))),
    )
