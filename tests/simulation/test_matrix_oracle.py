"""Training against Algorithm 1 as the paper's matrices, computed by numpy alone, to 1e-10."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from worlds import (
    Matrix,
    Problem,
    Weights,
    algorithm1,
    classification,
    convex,
    gradients,
    networks,
    schedules,
    vector,
)

import sdfeel
from sdfeel import Network, Schedule

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")

CLASSES = 3
LR = 0.3
ENGINES = st.sampled_from(["reference", "vectorised"])


def trained(
    problem: Problem, schedule: Schedule, steps: int, engine: str = "vectorised", **options: object
) -> sdfeel.Result:
    return sdfeel.train(
        problem.model,
        problem.datasets,
        network=problem.network,
        schedule=schedule,
        steps=steps,
        lr=LR,
        batch_size=10**6,
        engine=engine,
        **{"evaluate_every": 1000, **options},
    )


def servers_of(result: sdfeel.Result) -> Matrix:
    return np.stack([vector(model) for model in result.server_models], axis=1)


@settings(max_examples=30)
@given(networks(max_samples=12), schedules, st.integers(1, 30), ENGINES)
def test_training_is_algorithm_1(
    network: Network, schedule: Schedule, steps: int, engine: str
) -> None:
    """Any clusters, graph, tau1, tau2, alpha and K; u_K and, at an aggregation, every server."""
    problem = convex(network)
    weights = Weights(network, problem.samples)
    result = trained(problem, schedule, steps, engine)
    W = algorithm1(vector(problem.model), gradients(problem), weights, schedule, steps, LR)
    np.testing.assert_allclose(vector(result.model), W @ weights.m, rtol=0, atol=1e-10)
    if steps % schedule.tau1 == 0:
        np.testing.assert_allclose(servers_of(result) @ weights.B, W, rtol=0, atol=1e-10)


@settings(max_examples=20)
@given(
    networks(max_samples=12),
    schedules,
    st.sampled_from(["metropolis", "chebyshev", "all-reduce", "exact"]),
    ENGINES,
)
def test_training_with_every_other_averager(
    network: Network, schedule: Schedule, averager: str, engine: str
) -> None:
    problem, steps = convex(network), 2 * schedule.tau
    weights = Weights(network, problem.samples)
    operator = network.with_samples(problem.samples).averager(averager, schedule.alpha).operator
    result = trained(problem, schedule, steps, engine, averager=averager)
    W = algorithm1(
        vector(problem.model), gradients(problem), weights, schedule, steps, LR, operator
    )
    np.testing.assert_allclose(servers_of(result) @ weights.B, W, rtol=0, atol=1e-10)


@pytest.mark.parametrize("engine", ["reference", "vectorised"])
def test_linear_regression_with_a_loss_of_ones_own(engine: str) -> None:
    """Mean squared error: another model, another loss, the same matrices."""
    rng = np.random.default_rng(0)
    network = Network([[0, 2], [1], [3, 4]], "path")
    x = [rng.normal(size=(n, 3)) for n in (4, 9, 2, 7, 5)]
    y = [rng.normal(size=(len(part), 1)) for part in x]
    torch.manual_seed(0)
    problem = Problem(network, x, y, nn.Linear(3, 1, bias=False).double())

    def gradient(i: int):
        return lambda w: 2 * x[i].T @ (x[i] @ w - y[i][:, 0]) / len(x[i])

    schedule = Schedule(2, 2, 2)
    result = trained(problem, schedule, 11, engine, loss=functional.mse_loss)
    weights = Weights(network, problem.samples)
    start = vector(problem.model)
    W = algorithm1(start, [gradient(i) for i in range(5)], weights, schedule, 11, LR)
    np.testing.assert_allclose(vector(result.model), W @ weights.m, rtol=0, atol=1e-10)
    assert "train_accuracy" not in result.history


@settings(max_examples=15)
@given(networks(max_samples=10), schedules, st.integers(1, 12))
def test_aggregation_never_moves_the_weighted_mean(
    network: Network, schedule: Schedule, steps: int
) -> None:
    """u_k = u_{k-1} - eta sum m_i g_i: only gradients move it, so every row must follow them.

    Rows stand where upload periods end; a run that is no multiple of tau1 has one at its end, too.
    """
    problem = convex(network)
    weights, own = Weights(network, problem.samples), gradients(problem)
    result = trained(problem, schedule, steps, evaluate_every=1, train_samples=None)
    W = np.repeat(vector(problem.model)[:, None], network.clients, axis=1)
    u = W @ weights.m
    x, y = np.concatenate(problem.inputs), np.concatenate(problem.targets)
    losses = dict(zip(result.history["iteration"], result.history["train_loss"], strict=True))
    assert list(losses) == sorted({*range(0, steps + 1, schedule.tau1), steps})
    for k in range(steps + 1):
        if k:
            G = np.stack([g(W[:, i]) for i, g in enumerate(own)], axis=1)
            u = u - LR * G @ weights.m
            W = (W - LR * G) @ weights.T(k, schedule)
        if k not in losses:
            continue
        model = nn.Sequential(nn.Linear(4, CLASSES)).double()
        nn.utils.vector_to_parameters(torch.from_numpy(u), model.parameters())
        with torch.no_grad():
            expected = functional.cross_entropy(
                model(torch.from_numpy(x).double()), torch.from_numpy(y)
            )
        assert losses[k] == pytest.approx(float(expected), abs=1e-10)


def test_the_disagreement_of_the_servers_is_recorded() -> None:
    problem = classification((4, 6, 5), [[0], [1], [2]], "path", dtype=torch.float64)
    weights = Weights(problem.network, problem.samples)
    schedule = Schedule(2, 3, 1)
    result = trained(problem, schedule, 4, evaluate_every=4)
    W = algorithm1(vector(problem.model), gradients(problem), weights, schedule, 4, LR)
    u = W @ weights.m
    expected = np.sqrt(((W - u[:, None]) ** 2).sum(axis=0) @ weights.m)
    assert result.history["disagreement"].iloc[-1] == pytest.approx(expected, abs=1e-10)


# Partial participation: weights renormalise over those present, a cluster with nobody keeps its
# model, who is absent does not train and takes its server's model when it returns.


def algorithm1_with_absences(
    w0: Matrix, own: list, weights: Weights, schedule: Schedule, steps: int, present
) -> Matrix:
    """Servers' models, column by column, by the rules above and nothing else."""
    members = weights.network.clusters.members
    servers = [w0.copy() for _ in members]
    clients = {i: w0.copy() for cluster in members for i in cluster}
    for k in range(1, steps + 1):
        here = present((k - 1) // schedule.tau1)
        for i, w in clients.items():
            if here[i]:
                clients[i] = w - LR * own[i](w)
        if k % schedule.tau1 == 0:
            for d, cluster in enumerate(members):
                there = [i for i in cluster if here[i]]
                total = sum(weights.samples[i] for i in there)
                if there:
                    servers[d] = sum(weights.samples[i] / total * clients[i] for i in there)
            if k % schedule.tau == 0:
                mixing = np.linalg.matrix_power(weights.P, schedule.alpha)
                servers = list((np.stack(servers, axis=1) @ mixing).T)
            for d, cluster in enumerate(members):
                for i in cluster:
                    clients[i] = servers[d].copy()
    return np.stack(servers, axis=1)


@settings(max_examples=30)
@given(
    networks(max_samples=10),
    schedules,
    st.floats(0.1, 0.9),
    st.integers(0, 10**6),
    st.integers(1, 4),
    ENGINES,
)
def test_training_with_partial_participation(
    network: Network, schedule: Schedule, beta: float, seed: int, periods: int, engine: str
) -> None:
    problem, steps = convex(network), periods * schedule.tau1
    weights = Weights(network, problem.samples)
    result = trained(problem, schedule, steps, engine, participation=beta, seed=seed)
    present = sdfeel.algorithm.participation.Participation(network.clients, seed, beta).present
    servers = algorithm1_with_absences(
        vector(problem.model), gradients(problem), weights, schedule, steps, present
    )
    np.testing.assert_allclose(servers_of(result), servers, rtol=0, atol=1e-10)
    np.testing.assert_allclose(vector(result.model), servers @ weights.mt, rtol=0, atol=1e-10)
