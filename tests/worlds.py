"""Small worlds for the tests: random networks, small problems, and Algorithm 1 in plain numpy.

What is computed here is computed from the paper's definitions and asks the library nothing, so
that a test which compares the two compares two things.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import TensorDataset

from sdfeel import Network, Schedule

Matrix = NDArray[np.float64]


@st.composite
def graphs(draw: st.DrawFn, servers: int) -> nx.Graph:
    """A random connected graph: a random tree and some more links."""
    graph = nx.empty_graph(servers)
    for d in range(1, servers):
        graph.add_edge(d, draw(st.integers(0, d - 1)))
    more = list(nx.non_edges(graph))
    if more:
        graph.add_edges_from(draw(st.lists(st.sampled_from(more), max_size=servers)))
    return graph


@st.composite
def networks(
    draw: st.DrawFn, min_servers: int = 1, max_servers: int = 6, max_samples: int = 30
) -> Network:
    """Clusters of any size and order, any connected graph, any amount of data at each client."""
    servers = draw(st.integers(min_servers, max_servers))
    sizes = draw(st.lists(st.integers(1, 4), min_size=servers, max_size=servers))
    clients = draw(st.permutations(range(sum(sizes))))
    ends = np.cumsum([0, *sizes])
    clusters = [clients[ends[d] : ends[d + 1]] for d in range(servers)]
    samples = draw(st.lists(st.integers(1, max_samples), min_size=len(clients), max_size=1000))
    return Network(clusters, draw(graphs(servers)), samples[: len(clients)])


schedules = st.builds(Schedule, st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))


@dataclass
class Weights:
    """m, m-hat, m-tilde, V, B and P as sections II and III of the paper define them."""

    network: Network
    samples: Sequence[float]

    def __post_init__(self) -> None:
        clusters = self.network.clusters.members
        C, D = sum(map(len, clusters)), len(clusters)
        S = np.array(self.samples, dtype=float)
        held = np.array([sum(S[i] for i in members) for members in clusters])
        self.m, self.mt = S / S.sum(), held / held.sum()
        self.V, self.B = np.zeros((C, D)), np.zeros((D, C))
        for d, members in enumerate(clusters):
            for i in members:
                self.V[i, d], self.B[d, i] = S[i] / held[d], 1.0
        self.P = paper_matrix(self.network.graph, self.mt)

    def T(self, k: int, schedule: Schedule, mixing: Matrix | None = None) -> Matrix:  # noqa: N802
        """The transition matrix after iteration k; `mixing` in the place of P^alpha."""
        if k % schedule.tau1:
            return np.eye(len(self.m))
        if k % (schedule.tau1 * schedule.tau2):
            return self.V @ self.B
        if mixing is None:
            mixing = np.linalg.matrix_power(self.P, schedule.alpha)
        return self.V @ mixing @ self.B


def paper_matrix(graph: nx.Graph, mt: Matrix) -> Matrix:
    """P = I - 2/(lambda_1 + lambda_{D-1}) L Omega, by the eigenvalues of that very product."""
    D = len(mt)
    if D == 1:
        return np.eye(1)
    L = np.zeros((D, D))
    for a, b in graph.edges():
        L[a, a] += 1
        L[b, b] += 1
        L[a, b] = L[b, a] = -1
    product = L @ np.diag(1 / mt)
    eigenvalues = np.sort(np.linalg.eigvals(product).real)
    return np.eye(D) - 2 / (eigenvalues[-1] + eigenvalues[1]) * product


@dataclass
class Problem:
    """Clients' data, a network and a model, with all that `sdfeel.train` needs to be called."""

    network: Network
    inputs: list[Matrix]
    targets: list[Matrix]
    model: nn.Module

    @property
    def datasets(self) -> list[TensorDataset]:
        return [
            TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
            for x, y in zip(self.inputs, self.targets, strict=True)
        ]

    @property
    def samples(self) -> list[int]:
        return [len(x) for x in self.inputs]


def classification(
    samples: Sequence[int],
    clusters: Sequence[Sequence[int]],
    graph: Any = "path",
    *,
    classes: int = 3,
    features: int = 4,
    hidden: int = 0,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Problem:
    """Gaussian classes, more of one class at each client: non-IID and easy to learn."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.normal(size=(classes, features))
    inputs, targets = [], []
    for client, count in enumerate(samples):
        labels = np.where(
            rng.random(count) < 0.5, client % classes, rng.integers(0, classes, count)
        )
        inputs.append((centres[labels] + rng.normal(size=(count, features))).astype(np.float32))
        targets.append(labels.astype(np.int64))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = [nn.Linear(features, hidden or classes)]
        if hidden:
            layers += [nn.Tanh(), nn.Linear(hidden, classes)]
        model = nn.Sequential(*layers).to(dtype)
    return Problem(Network(clusters, graph), inputs, targets, model)


def vector(model: nn.Module) -> Matrix:
    """All parameters in the order of `named_parameters`, as numpy."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).double().numpy()


def softmax_gradient(x: Matrix, y: Matrix, classes: int) -> Callable[[Matrix], Matrix]:
    """The full gradient of the mean cross-entropy of a linear layer (weight, then bias)."""
    ones = np.ones((len(x), 1))
    X = np.hstack([x.astype(float), ones])
    Y = np.eye(classes)[y]

    def gradient(w: Matrix) -> Matrix:
        features = x.shape[1]
        weight, bias = w[: classes * features].reshape(classes, features), w[classes * features :]
        logits = X @ np.vstack([weight.T, bias])
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        p /= p.sum(axis=1, keepdims=True)
        g = (p - Y).T @ X / len(x)
        return np.concatenate([g[:, :features].ravel(), g[:, features]])

    return gradient


def convex(network: Network) -> Problem:
    """Softmax regression in float64 on as much data as the network says."""
    samples = [int(count) for count in network.shares.samples]
    return classification(samples, network.clusters.members, network.graph, dtype=torch.float64)


def gradients(problem: Problem, classes: int = 3) -> list[Callable[[Matrix], Matrix]]:
    """Of every client, as functions of the model."""
    pairs = zip(problem.inputs, problem.targets, strict=True)
    return [softmax_gradient(x, y, classes) for x, y in pairs]


def recursion(
    W: Matrix,
    gradient: Callable[[int, Matrix], Matrix],
    transition: Callable[[int], Matrix],
    lr: float,
    first: int = 1,
) -> Iterator[Matrix]:
    """Algorithm 1 as Lemma 1 has it, without end: W_k = (W_{k-1} - eta G_k) T_k for k = first ...

    W has a column for each client; before its two axes there may be repeats or settings, carried
    out side by side.
    """
    for k in itertools.count(first):
        W = (W - lr * gradient(k, W)) @ transition(k)
        yield W


def algorithm1(
    w0: Matrix,
    gradients: Sequence[Callable[[Matrix], Matrix]],
    weights: Weights,
    schedule: Schedule,
    steps: int,
    lr: float,
    mixing: Matrix | None = None,
) -> Matrix:
    """W_K, one column a client."""
    models = recursion(
        np.repeat(w0[:, None], len(gradients), axis=1),
        lambda _, W: np.stack([g(W[:, i]) for i, g in enumerate(gradients)], axis=1),
        lambda k: weights.T(k, schedule, mixing),
        lr,
    )
    return next(itertools.islice(models, steps - 1, None))


def corrected(
    w0: Matrix,
    gradients: Sequence[Callable[[Matrix], Matrix]],
    weights: Weights,
    schedule: Schedule,
    steps: int,
    lr: Callable[[int], float],
    *,
    mixing: Matrix,
    gamma: float,
    levels: str = "two-level",
    present: Callable[[int], Sequence[bool]] | None = None,
) -> tuple[Matrix, Matrix, Matrix]:
    """Algorithm 1 with two-level correction, written out: servers' models, z and y (columns).

    present  who takes part, by the number of the upload period; all without it
    """
    members = weights.network.clusters.members
    C, D = len(gradients), len(members)
    servers = np.repeat(w0[:, None], D, axis=1)
    z, y = np.zeros((len(w0), C)), np.zeros((len(w0), D))
    for first in range(1, steps + 1, schedule.tau1):
        there = (
            np.ones(C)
            if present is None
            else np.array(present((first - 1) // schedule.tau1), float)
        )
        etas = [lr(k) for k in range(first, first + schedule.tau1)]
        trains = [d for d in range(D) if there[members[d],].any()]
        share = sum(weights.mt[d] for d in trains)
        centre = sum((weights.mt[d] / share * y[:, d] for d in trains), np.zeros(len(w0)))
        before = servers.copy()
        for d in trains:
            own = [i for i in members[d] if there[i]]
            mhat = weights.m[own] / weights.m[own].sum()
            shift = {i: z[:, i] - z[:, own] @ mhat + y[:, d] - centre for i in own}
            models = {}
            for i in own:
                w = before[:, d].copy()
                for eta in etas:
                    w = w - eta * (gradients[i](w) + shift[i])
                models[i] = w
            servers[:, d] = sum(m * models[i] for m, i in zip(mhat, own, strict=True))
            if levels != "servers":
                for i in own:
                    z[:, i] += (models[i] - servers[:, d]) / sum(etas)
        last = first + schedule.tau1 - 1
        if last % (schedule.tau1 * schedule.tau2) == 0:
            after = servers @ mixing
            if levels != "clients":
                R = sum(lr(k) for k in range(last - schedule.tau1 * schedule.tau2 + 1, last + 1))
                y += gamma * (servers - after) / R
            if levels == "mtgc":
                z[:] = 0
            servers = after
    return servers, z, y
