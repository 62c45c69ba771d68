"""One scheme is another in a special case: the table of schemes holds no contradictions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import (
    Matrix,
    Problem,
    Weights,
    classification,
    networks,
    schedules,
    softmax_gradient,
    vector,
)

import sdfeel
from sdfeel import SCHEMES, Network, Schedule

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")


def problem_on(network: Network) -> Problem:
    samples = [int(count) for count in network.shares.samples]
    return classification(
        samples, network.clusters.members, network.graph, dtype=torch.float64, hidden=5
    )


def train(problem: Problem, scheme: str, schedule: Schedule, steps: int, **options: object):
    return sdfeel.train(
        problem.model,
        problem.datasets,
        network=problem.network,
        schedule=schedule,
        scheme=scheme,
        steps=steps,
        lr=0.2,
        engine="vectorised",
        **{"batch_size": 3, "seed": 11, "evaluate_every": 1000, **options},
    )


def servers_of(result: sdfeel.Result) -> Matrix:
    return np.stack([vector(model) for model in result.server_models])


@settings(max_examples=8)
@given(networks(max_samples=8), schedules, st.sampled_from(["exact", "all-reduce"]))
def test_sdfeel_with_an_exact_averager_is_hierfavg(
    network: Network, schedule: Schedule, averager: str
) -> None:
    problem, steps = problem_on(network), 2 * schedule.tau + 1
    one = train(problem, "sd-feel", schedule, steps, averager=averager)
    two = train(problem, "hierfavg", schedule, steps)
    np.testing.assert_allclose(servers_of(one), servers_of(two), atol=1e-12)
    np.testing.assert_allclose(vector(one.model), vector(two.model), atol=1e-12)


@settings(max_examples=8)
@given(networks(max_servers=1, max_samples=8), st.integers(1, 5))
def test_sdfeel_with_one_server_is_fedavg(network: Network, tau: int) -> None:
    problem = problem_on(network)
    one = train(problem, "sd-feel", Schedule(tau, 1, 3), 2 * tau + 1)
    two = train(problem, "fedavg", Schedule(tau, 1, 3), 2 * tau + 1)
    np.testing.assert_allclose(vector(one.model), vector(two.model), atol=1e-13)


@settings(max_examples=8)
@given(networks(max_samples=8), st.integers(1, 5))
def test_hierfavg_with_tau2_1_is_fedavg_to_the_model(network: Network, tau: int) -> None:
    """Why the paper's figure 3 needs a reading: the two can differ by the clock only."""
    problem = problem_on(network)
    one = train(problem, "hierfavg", Schedule(tau, 1, 1), 2 * tau)
    two = train(problem, "fedavg", Schedule(tau, 1, 1), 2 * tau)
    np.testing.assert_allclose(vector(one.model), vector(two.model), atol=1e-12)


@settings(max_examples=8)
@given(networks(max_samples=8))
def test_averaging_exactly_at_every_step_is_centralised_sgd(network: Network) -> None:
    """tau1 = tau2 = 1 with an exact averager: w <- w - eta sum m_i grad F_i(w), on full batches."""
    samples = [int(count) for count in network.shares.samples]
    problem = classification(samples, network.clusters.members, network.graph, dtype=torch.float64)
    m = Weights(network, problem.samples).m
    pairs = zip(problem.inputs, problem.targets, strict=True)
    own = [softmax_gradient(x, y, 3) for x, y in pairs]
    w = vector(problem.model)
    for _ in range(7):
        w = w - 0.2 * sum(share * g(w) for share, g in zip(m, own, strict=True))
    full = {"batch_size": 100}
    exact = train(problem, "sd-feel", Schedule(1, 1, 1), 7, averager="exact", **full)
    sync = train(problem, "sync-sgd", Schedule(4, 3, 2), 7, **full)
    np.testing.assert_allclose(vector(exact.model), w, atol=1e-12)
    np.testing.assert_allclose(vector(sync.model), w, atol=1e-12)
    for model in servers_of(exact):
        np.testing.assert_allclose(model, w, atol=1e-12)


@settings(max_examples=8)
@given(networks(max_samples=8))
def test_with_many_exchanges_every_server_holds_the_weighted_mean(network: Network) -> None:
    problem = problem_on(network)
    many = train(problem, "sd-feel", Schedule(2, 2, 2000), 8)
    cloud = train(problem, "hierfavg", Schedule(2, 2, 1), 8)
    np.testing.assert_allclose(servers_of(many), servers_of(cloud), atol=1e-9)


def test_feel_trains_on_the_data_it_reaches_and_no_other() -> None:
    problem = classification((9, 8, 7, 30), [[1, 2], [0, 3]], "path", dtype=torch.float64)
    result = train(problem, "feel", Schedule(2, 1, 1), 6, batch_size=100)
    (x1, y1), (x2, y2) = ((problem.inputs[i], problem.targets[i]) for i in (1, 2))
    own = [softmax_gradient(x1, y1, 3), softmax_gradient(x2, y2, 3)]
    server = vector(problem.model)
    for _ in range(3):
        models = []
        for g in own:
            w = server
            for _ in range(2):
                w = w - 0.2 * g(w)
            models.append(w)
        server = (8 * models[0] + 7 * models[1]) / 15
    np.testing.assert_allclose(vector(result.model), server, atol=1e-12)


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_every_scheme_learns(scheme: str) -> None:
    problem = classification([20] * 12, np.arange(12).reshape(4, 3).tolist(), "ring")
    result = train(problem, scheme, Schedule(2, 2, 2), 60, evaluate_every=60)
    losses = result.history["train_loss"].tolist()
    assert losses[-1] < 0.6 * losses[0]
    assert result.iterations == 60
    assert result.scheme == scheme
