"""A convex problem that simulates quickly: softmax regression, many schedules side by side.

All schedules see the same mini-batches (shared randomness), so that they differ by their schedule
only, and one matrix product per client and iteration serves all of them. It is what the planner's
regret is measured on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from worlds import Weights, recursion

from sdfeel import Network, Schedule

__all__ = ["SideBySide", "SoftmaxProblem", "SoftmaxSchedule", "random_softmax"]

Array = NDArray[np.float64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SoftmaxSchedule:
    """One schedule: `operator` is the D x D matrix of an inter-cluster aggregation."""

    tau1: int
    tau2: int
    operator: Array

    @property
    def every(self) -> int:
        """Iterations between two evaluations: whole upload periods, at least 5 iterations."""
        return self.tau1 * -(-5 // self.tau1)


@dataclass(frozen=True)
class SoftmaxProblem:
    """Every client holds the same number of samples: inputs (C, n, features), labels (C, n)."""

    network: Network
    inputs: Floats
    labels: NDArray[np.int64]
    classes: int
    lr: float
    batch_size: int
    seed: int

    @property
    def features(self) -> int:
        return int(self.inputs.shape[2])

    @cached_property
    def _everything(self) -> tuple[Floats, Floats]:
        """All samples and their labels as unit vectors."""
        flat = self.inputs.reshape(-1, self.features)
        return flat, np.eye(self.classes, dtype=np.float32)[self.labels.reshape(-1)]

    def losses(self, W: Floats) -> Array:
        """F for models of shape (features, classes, schedules)."""
        inputs, targets = self._everything
        logits = (inputs @ W.reshape(self.features, -1)).reshape(len(inputs), self.classes, -1)
        logits -= logits.max(axis=1, keepdims=True)
        right = np.einsum("ncs,nc->s", logits, targets)
        total = np.log(np.exp(logits).sum(axis=1)).sum(axis=0) - right
        return np.asarray(total / len(inputs), dtype=np.float64)

    def client_gradients(self, W: Floats) -> Array:
        """Grad F_i at one model (features, classes), for every client: (C, features * classes)."""
        residual = (
            _softmax(self.inputs @ W, 2) - np.eye(self.classes, dtype=np.float32)[self.labels]
        )
        gradients = np.swapaxes(self.inputs, 1, 2) @ residual / self.labels.shape[1]
        return np.asarray(gradients.reshape(len(gradients), -1), dtype=np.float64)

    def batches(self, k: int) -> NDArray[np.int64]:
        """The samples of every client's mini-batch at iteration k: a function of (seed, k)."""
        rng = np.random.default_rng((self.seed, k))
        return rng.integers(self.labels.shape[1], size=(self.network.clients, self.batch_size))


def random_softmax(
    network: Network,
    seed: int,
    *,
    inside: float,
    between: float,
    samples: int = 40,
    features: int = 10,
    classes: int = 4,
    spread: float = 1.0,
    lr: float = 0.1,
    batch_size: int = 8,
) -> SoftmaxProblem:
    """Gaussian classes, shared out with two label skews.

    The classes of a cluster are Dirichlet(between), those of a client Dirichlet around its
    cluster's with concentration `inside`: small is skewed, large is IID.
    """
    rng = np.random.default_rng((seed, 1))
    centres = rng.normal(size=(classes, features)) * spread
    labels = np.empty((network.clients, samples), dtype=np.int64)
    for members in network.clusters.members:
        of_cluster = rng.dirichlet(np.full(classes, between)) + 1e-3
        for client in members:
            of_client = rng.dirichlet(inside * classes * of_cluster / of_cluster.sum() + 1e-3)
            labels[client] = rng.choice(classes, size=samples, p=of_client)
    inputs = centres[labels] + rng.normal(size=(*labels.shape, features))
    inputs = np.concatenate([inputs, np.ones((*labels.shape, 1))], axis=2) / np.sqrt(features + 1)
    return SoftmaxProblem(network, inputs.astype(np.float32), labels, classes, lr, batch_size, seed)


class SideBySide:
    """Schedules in training on one problem, all with the same mini-batches.

    `W` holds every client's model for every schedule: (schedules, features x classes, clients).
    """

    def __init__(self, problem: SoftmaxProblem, schedules: Sequence[SoftmaxSchedule]) -> None:
        self.problem = problem
        self.weights = Weights(problem.network, problem.network.shares.samples)
        self.k = 0
        size = problem.features * problem.classes
        start = np.zeros((len(schedules), size, problem.network.clients), dtype=np.float32)
        self._begin(start, schedules)

    def _begin(self, W: Floats, schedules: Sequence[SoftmaxSchedule]) -> None:
        self.W, self.schedules = W, list(schedules)
        self.periods = np.array([(s.tau1, s.tau1 * s.tau2, s.every) for s in schedules])
        # For each schedule what an iteration ends with: nothing, an upload, an exchange.
        every = Schedule(2, 2, 1)
        self._ends = np.array(
            [[self.weights.T(k, every, s.operator) for k in (1, 2, 4)] for s in schedules],
            dtype=np.float32,
        )
        self._models = recursion(W, self._gradient, self._transition, self.problem.lr, self.k + 1)

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these schedules only."""
        self._begin(self.W[rows], [self.schedules[row] for row in rows])

    def step(self) -> NDArray[np.int64]:
        """One iteration of Algorithm 1 for all; returns the rows that are due for evaluation."""
        self.W = next(self._models)
        self.k += 1
        return np.flatnonzero(self.k % self.periods[:, 2] == 0)

    def _gradient(self, k: int, W: Floats) -> Floats:
        problem, (S, _, C) = self.problem, W.shape
        F, K = problem.features, problem.classes
        chosen = problem.batches(k)
        rows = np.arange(C)[:, None]
        X, y = problem.inputs[rows, chosen], problem.labels[rows, chosen]
        models = W.reshape(S, F, K, C).transpose(3, 1, 2, 0).reshape(C, F, K * S)
        residual = _softmax((X @ models).reshape(C, -1, K, S), 2)
        residual[rows, np.arange(y.shape[1])[None, :], y] -= 1
        gradients = np.swapaxes(X, 1, 2) @ residual.reshape(C, -1, K * S) / np.float32(y.shape[1])
        return gradients.reshape(C, F * K, S).transpose(2, 1, 0)

    def _transition(self, k: int) -> Floats:
        ends = (k % self.periods[:, :2] == 0).sum(axis=1)
        return np.asarray(self._ends[np.arange(len(ends)), ends])

    def means(self, rows: NDArray[np.int64]) -> Floats:
        """u_k of some schedules: (features, classes, rows)."""
        means = self.W[rows] @ self.weights.m.astype(np.float32)
        return np.asarray(means.T.reshape(self.problem.features, self.problem.classes, -1))

    def losses(self, rows: NDArray[np.int64]) -> Array:
        return self.problem.losses(self.means(rows))


def _softmax(logits: Floats, axis: int) -> Floats:
    shifted = logits - logits.max(axis=axis, keepdims=True)
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=axis, keepdims=True)
    return np.asarray(shifted)
