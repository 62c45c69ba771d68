"""Baselines without servers: D-PSGD on the clients' graph, and everybody for itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn
from worlds import Matrix, Problem, classification, networks, softmax_gradient, vector

import sdfeel
from sdfeel import InputError, Network, Schedule
from sdfeel.clock import load_profile, profile_of, profile_table
from sdfeel.simulation.settings import Settings

SAMPLES = (9, 4, 7, 12, 6)
CLUSTERS = [[3, 0], [1, 4, 2]]
LR = 0.2


def problem(**options: Any) -> Problem:
    return classification(SAMPLES, CLUSTERS, "path", dtype=torch.float64, **options)


def train(own: Problem, scheme: str, steps: int, network: Network | None = None, **options: Any):
    given = {
        "schedule": Schedule(2, 3, 4), "lr": LR, "batch_size": 100, "engine": "vectorised",
        "evaluate_every": 1000, **options,
    }  # fmt: skip
    return sdfeel.train(
        own.model, own.datasets, network=network or own.network, scheme=scheme, steps=steps, **given
    )


def metropolis(graph: nx.Graph, m: Matrix) -> Matrix:
    """W from its definition: what i takes of j keeps the weighted mean, by the smaller flow."""
    W = np.zeros((len(m), len(m)))
    for i, j in graph.edges():
        flow = min(m[i] / (graph.degree[i] + 1), m[j] / (graph.degree[j] + 1))
        W[i, j], W[j, i] = flow / m[j], flow / m[i]
    return W + np.diag(1 - W.sum(axis=0))


def by_hand(own: Problem, graph: nx.Graph | None, steps: int, tau1: int) -> Matrix:
    """A row for each client; every tau1 steps each mixes with its neighbours on `graph`."""
    gradients = [softmax_gradient(x, y, 3) for x, y in zip(own.inputs, own.targets, strict=True)]
    models = np.stack([vector(own.model)] * len(SAMPLES))
    m = np.array(SAMPLES) / sum(SAMPLES)
    for k in range(1, steps + 1):
        models = np.stack([w - LR * g(w) for w, g in zip(models, gradients, strict=True)])
        if graph is not None and k % tau1 == 0:
            models = metropolis(graph, m).T @ models
    return models


def clients_of(result: sdfeel.Result) -> Matrix:
    return np.stack([vector(result.client_model(i)) for i in range(len(SAMPLES))])


RING = nx.Graph([(3, 0), (0, 1), (1, 4), (4, 2), (2, 3)])  # cluster by cluster
STAR = nx.star_graph(4)


@pytest.mark.parametrize("tau1", [1, 2])
@pytest.mark.parametrize(("given", "graph"), [("ring", RING), (STAR, STAR)])
def test_d_psgd_by_hand(tau1: int, given: Any, graph: nx.Graph) -> None:
    own = problem()
    network = Network(CLUSTERS, "path", clients_graph=given)
    result = train(own, "d-psgd", 6, network, schedule=Schedule(tau1, 3, 4))
    np.testing.assert_allclose(clients_of(result), by_hand(own, graph, 6, tau1), atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_d_psgd_by_hand_in_the_middle_of_a_period(steps: int) -> None:
    """Clients hold what they have trained since the last exchange."""
    own = problem()
    network = Network(CLUSTERS, "path", clients_graph="ring")
    result = train(own, "d-psgd", steps, network, schedule=Schedule(2, 1, 1))
    clients = clients_of(result)
    np.testing.assert_allclose(clients, by_hand(own, RING, steps, 2), atol=1e-12)
    shares = np.array(SAMPLES) / sum(SAMPLES)
    np.testing.assert_allclose(shares @ clients, vector(result.model), atol=1e-12)


def test_local_by_hand_in_the_middle_of_a_period_too() -> None:
    own = problem()
    for steps in (3, 4):
        result = train(own, "local", steps)
        np.testing.assert_allclose(clients_of(result), by_hand(own, None, steps, 1), atol=1e-12)


def test_local_is_evaluated_by_the_clients_own_models() -> None:
    """Nobody holds their mean: numbers are averaged, by the clients' shares, not models."""
    own, weights = problem(), np.array(SAMPLES) / sum(SAMPLES)
    x = torch.from_numpy(np.concatenate(own.inputs)).double()
    y = torch.from_numpy(np.concatenate(own.targets))
    result = train(own, "local", 5, test=(x[:20].numpy(), y[:20].numpy()), evaluate_every=5)
    losses, right = [], []
    for client in range(len(SAMPLES)):
        with torch.no_grad():
            outputs = result.client_model(client)(x)
        losses.append(float(nn.functional.cross_entropy(outputs, y)))
        right.append(float((outputs[:20].argmax(dim=1) == y[:20]).double().mean()))
    last = result.history.iloc[-1]
    assert last["train_loss"] == pytest.approx(weights @ losses, rel=1e-9)
    assert last["test_accuracy"] == pytest.approx(weights @ right)
    assert last["server_accuracy_min"] == pytest.approx(min(right))


@settings(max_examples=15)
@given(networks(max_samples=8), st.integers(1, 3), st.integers(1, 4))
def test_the_clock_charges_links_between_clients(network: Network, tau1: int, rounds: int) -> None:
    """Every exchange takes as long as the slower end of a link needs to send to its server."""
    rates = np.linspace(1e6, 9e6, network.clients)
    table = profile_table(load_profile("paper"))
    profile = profile_of(table | {"rates": table["rates"] | {"client_server": rates}})
    settings = Settings.of({"scheme": "d-psgd", "schedule": Schedule(tau1, 2, 2)})
    own, at = settings.algorithm(network, profile, 1000), np.zeros(network.clients)
    links = network.clients_graph.number_of_edges()
    for event in own.events(tau1 * rounds):
        before = at + tau1 * 0.01384
        at = before.copy()
        for i, j in network.clients_graph.edges():
            arrives = max(before[i], before[j]) + 32_000 / min(rates[i], rates[j])
            at[i], at[j] = max(at[i], arrives), max(at[j], arrives)
        assert event.ends == pytest.approx(at.max(), rel=1e-9)
        assert event.bytes == {"up": 0, "down": 0, "between": 2 * links * 4000}
    assert event.k == tau1 * rounds


def test_codecs_between_clients_are_charged_and_applied() -> None:
    own = problem()
    plain, coded = (
        train(own, "d-psgd", 8, codecs={"between": codec}) for codec in ("float32", "int8")
    )
    assert coded.seconds < plain.seconds
    assert 0 < np.abs(clients_of(coded) - clients_of(plain)).max() < 0.05


@pytest.mark.parametrize(
    ("scheme", "options", "match"),
    [
        ("d-psgd", {"participation": 0.5}, "scheme.*all clients in every.*participation = 0.5"),
        ("d-psgd", {"pace": sdfeel.Deadline(9.0)}, "all clients in every.*the pace Deadline"),
        ("d-psgd", {"pace": "asynchronous"}, "pace"),
        ("d-psgd", {"codecs": {"up": "int8"}}, "codecs.up.*needs servers beside.*scheme d-psgd"),
        ("d-psgd", {"server_optimizer": "fedadam"}, "server_optimizer.*needs servers"),
        ("d-psgd", {"averaging_rule": "median"}, "averaging_rule.*needs servers"),
        ("local", {"codecs": {"between": "int8"}}, "codecs.between.*needs servers that meet"),
        ("fedavg", {"codecs": {"between": "int8"}}, "codecs.between.*several.*scheme fedavg"),
        ("fedbuff", {"codecs": {"between": "int8"}}, "codecs.between.*several.*scheme fedbuff"),
        ("local", {"correction": "two-level"}, "correction.*needs servers that meet"),
        (
            "d-psgd",
            {"profile": profile_table(load_profile("paper"))
             | {"availability": {"law": "exponential", "on": 5.0, "off": 1.0}}},
            "all clients in every period.*devices that come and go",
        ),
    ],
)  # fmt: skip
def test_what_needs_a_server_is_refused(scheme: str, options: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        train(problem(), scheme, 2, **options)


def test_a_wrong_graph_of_clients_is_named() -> None:
    with pytest.raises(InputError, match=r"clients_graph = .*did you mean 'ring'"):
        train(problem(), "d-psgd", 2, Network(CLUSTERS, "path", clients_graph="rink"))
    with pytest.raises(InputError, match=r"clients_graph.*connected"):
        train(problem(), "d-psgd", 2, Network(CLUSTERS, "path", clients_graph=[(0, 1), (2, 3)]))


def test_absent_clients_of_local_keep_their_models() -> None:
    result = train(problem(), "local", 2, participation=0.5, seed=3)
    moved = np.abs(clients_of(result) - vector(problem().model)).max(axis=1) > 0
    assert 0 < moved.sum() < len(SAMPLES)


CONFIG = """
scheme = "{scheme}"
steps = 5
engine = "reference"
schedule = {{tau1 = 2, tau2 = 1, alpha = 1}}
network = {{servers = 2, clients_per_server = 2, clients_graph = "path"}}
model = {{name = "logistic"}}
data = {{partition = "iid"}}
evaluation = {{every = 3, train_samples = 100}}
"""


@pytest.mark.slow
def test_two_ranks_give_the_same(tmp_path: Path) -> None:
    """Every model is sent round: each rank has some of the samples."""
    (tmp_path / "config.toml").write_text(CONFIG.format(scheme="local"))
    command = [sys.executable, "-m", "sdfeel", "run", str(tmp_path / "config.toml"), "--json"]
    running = [
        subprocess.Popen(
            [*command, "--ranks", ranks, "--out", str(tmp_path / ranks)], stdout=subprocess.PIPE
        )
        for ranks in "12"
    ]
    for process in running:
        told, _ = process.communicate(timeout=120)
        assert json.loads(told)["iterations"] == 5
    models = [load_file(tmp_path / ranks / "servers.safetensors")["servers"] for ranks in "12"]
    assert torch.equal(*models)
    one, two = (pd.read_csv(tmp_path / ranks / "metrics.csv") for ranks in "12")
    columns = [name for name in one if name.startswith(("train_", "test_", "seconds"))]
    pd.testing.assert_frame_equal(one[columns], two[columns], rtol=1e-6)
