"""A graph that changes over time: every round exchanges, and is charged, on its own graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from worlds import Matrix, Problem, classification, softmax_gradient, vector

import sdfeel
from sdfeel import InputError, Network, Schedule, load_profile
from sdfeel.experiments.config import run_config
from sdfeel.experiments.run import build_network
from sdfeel.network import ChangingNetwork
from sdfeel.page.timeline import network_of
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation

SAMPLES = (9, 4, 7, 12)
CLUSTERS = [[0], [1], [2], [3]]
PATH, STAR = nx.path_graph(4), nx.star_graph(3)
TURNS = [(PATH, 2), (STAR, 1)]
LR = 0.2
ROUND = Schedule(2, 1, 1)
LINKS = replace(load_profile("paper"), links={(0, 1): 10e6, (0, 3): 2e6, (2, 3): 5e6})


def problem() -> Problem:
    return classification(SAMPLES, CLUSTERS, "path", dtype=torch.float64)


def train(network: Network, steps: int, **options: Any) -> sdfeel.Result:
    own = problem()
    given = {
        "schedule": ROUND, "lr": LR, "batch_size": 100, "engine": "reference",
        "averager": "metropolis", "evaluate_every": 1000, **options,
    }  # fmt: skip
    return sdfeel.train(own.model, own.datasets, network=network, steps=steps, **given)


def servers_of(result: sdfeel.Result) -> Matrix:
    return result.servers.numpy()


def by_hand(graphs: list[nx.Graph]) -> tuple[Matrix, float]:
    """A round of two full gradients on each graph; models, and the clock server by server."""
    own, m = problem(), np.array(SAMPLES) / sum(SAMPLES)
    gradients = [softmax_gradient(x, y, 3) for x, y in zip(own.inputs, own.targets, strict=True)]
    models, at = np.stack([vector(own.model)] * 4), np.zeros(4)
    bits = 32 * models.shape[1]
    for graph in graphs:
        for _ in range(2):
            models = np.stack([w - LR * g(w) for w, g in zip(models, gradients, strict=True)])
        at = at + 2 * 0.01384 + bits / 5e6
        W, before = np.zeros((4, 4)), at.copy()
        for i, j in graph.edges():
            flow = min(m[i] / (graph.degree[i] + 1), m[j] / (graph.degree[j] + 1))
            W[i, j], W[j, i] = flow / m[j], flow / m[i]
            arrives = max(before[i], before[j]) + bits / LINKS.links.get((i, j), 50e6)
            at[[i, j]] = np.maximum(at[[i, j]], arrives)
        models = (W + np.diag(1 - W.sum(axis=0))).T @ models
    return models, float(at.max())


def test_every_round_by_hand() -> None:
    """Two rounds of a path and one of a star, and from the beginning: five rounds."""
    result = train(ChangingNetwork(CLUSTERS, TURNS), 10, profile=LINKS)
    models, seconds = by_hand([PATH, PATH, STAR, PATH, PATH])
    np.testing.assert_allclose(servers_of(result), models, atol=1e-12)
    assert result.seconds == pytest.approx(seconds, rel=1e-12)


@pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")
@pytest.mark.parametrize("averager", ["paper", "chebyshev", "finite-time", "all-reduce", "exact"])
def test_one_graph_over_and_over_is_one_graph(averager: str) -> None:
    still = train(Network(CLUSTERS, "star"), 8, averager=averager)
    same = train(ChangingNetwork(CLUSTERS, [("star", 1), (STAR, 2)]), 8, averager=averager)
    np.testing.assert_array_equal(servers_of(still), servers_of(same))
    assert still.seconds == same.seconds


def a_function(number: int) -> Any:
    return "star" if number % 3 == 2 else "path"


def test_a_function_of_the_round_is_what_it_gives() -> None:
    listed, said = (train(ChangingNetwork(CLUSTERS, g), 10) for g in (TURNS, a_function))
    np.testing.assert_array_equal(servers_of(listed), servers_of(said))
    assert listed.seconds == said.seconds


@pytest.mark.parametrize("graphs", [TURNS, a_function])
def test_a_resumed_run_is_bit_for_bit_the_same(tmp_path: Path, graphs: Any) -> None:
    network = ChangingNetwork(CLUSTERS, graphs)
    train(network, 5, out=tmp_path, batch_size=3)
    again = train(network, 11, out=tmp_path, resume=True, batch_size=3)
    straight = train(network, 11, batch_size=3)
    np.testing.assert_array_equal(servers_of(again), servers_of(straight))
    assert again.seconds == straight.seconds


def test_other_graphs_do_not_go_on_with_a_run(tmp_path: Path) -> None:
    train(ChangingNetwork(CLUSTERS, TURNS), 4, out=tmp_path)
    for graphs in ([(PATH, 2), ("full", 1)], a_function):
        with pytest.raises(InputError, match="checkpoint"):
            train(ChangingNetwork(CLUSTERS, graphs), 8, out=tmp_path, resume=True)
    with pytest.raises(InputError, match="checkpoint"):
        train(Network(CLUSTERS, "path"), 8, out=tmp_path, resume=True)


def test_what_a_later_graph_brings_is_told_too() -> None:
    """Of equal clusters the paper's weights are negative on a star, and not on a path."""
    own = classification((8, 8, 8, 8), CLUSTERS, "path")
    assert not own.network.averager("paper").has_negative_weights
    with pytest.warns(sdfeel.api.NegativeMixingWarning):
        sdfeel.train(
            own.model, own.datasets, network=ChangingNetwork(CLUSTERS, TURNS), steps=2,
            schedule=ROUND, engine="reference",
        )  # fmt: skip


def test_the_weighted_mean_stays_on_every_graph() -> None:
    network = ChangingNetwork(CLUSTERS, TURNS, SAMPLES)
    shares = network.shares.cluster
    for number in range(6):
        operator = network.at(number).averager("paper", 2).operator
        np.testing.assert_allclose(operator @ shares, shares, atol=1e-12)
    assert network.at(0) is network.at(4)
    assert network.at(2).graph.degree[0] == 3


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"pace": "asynchronous"}, "pace.*needs one mixing.*a graph that changes"),
        (
            {"correction": "two-level"},
            "correction = 'two-level': needs one mixing.*a graph that changes",
        ),
        (
            {"codecs": {"between": "int8"}},
            "codecs.between.*needs neighbours that stay.*a graph that changes",
        ),
        ({"averager": np.full((4, 4), 0.25)}, "averager"),
    ],
)
def test_what_is_made_for_one_graph_is_refused(options: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        train(ChangingNetwork(CLUSTERS, TURNS), 2, **options)


def test_a_correction_of_clients_needs_no_graph() -> None:
    assert train(ChangingNetwork(CLUSTERS, TURNS), 4, correction="clients").iterations == 4


def test_the_planner_plans_for_one_graph() -> None:
    own = problem()
    network = ChangingNetwork(CLUSTERS, TURNS)
    simulation = Simulation.assemble(own.model, own.datasets, Settings(), network=network)
    with pytest.raises(InputError, match="the planner plans for one graph"):
        TrainingLaboratory(simulation)


@pytest.mark.parametrize(
    ("graphs", "match"),
    [
        ([], "graphs = \\[\\]: a list"),
        ("ring", "graphs = 'ring': a list"),
        ([("rink", 2)], r"graphs\[0\]: graph = 'rink': did you mean 'ring'"),
        ([("ring", 0)], "at least 1 round"),
        ([[(0, 1)], [(2, 3)]], r"graphs = '2 parts'.*connected"),
        (lambda number: "rink" if number else "ring", "graph of round 1: graph = 'rink'"),
        (lambda _: None, "graph of round 0"),
    ],
)
def test_a_graph_that_is_none_is_named(graphs: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        train(ChangingNetwork(CLUSTERS, graphs), 4)


def test_a_file_has_graphs_and_rounds() -> None:
    turns = [{"graph": "ring", "rounds": 5}, {"graph": "random", "options": {"seed": 1}}]
    table = {"network": {"servers": 6, "clients_per_server": 2, "graphs": turns}}
    network = build_network(run_config(table).network)
    assert isinstance(network, ChangingNetwork)
    assert [rounds for _, rounds in network.turns or ()] == [5, 1]
    with pytest.raises(InputError, match="rounds"):
        run_config({"network": {"graphs": [{"graph": "ring", "rounds": 0}]}})


def test_the_page_reads_the_graphs_back() -> None:
    own = problem()
    network = ChangingNetwork(CLUSTERS, TURNS)
    simulation = Simulation.assemble(own.model, own.datasets, Settings(), network=network)
    again = network_of(simulation.drawn(), {})
    assert again.turns == network.turns


@pytest.mark.parametrize("averager", ["paper", "metropolis"])
def test_a_round_need_not_be_connected_if_all_together_are(averager: str) -> None:
    """Pairs meet in turn: each mixes by itself, and the others keep their models."""
    network = Network(CLUSTERS, "ring", SAMPLES).changing([[(0, 1), (2, 3)], [(1, 2)]])
    shares = network.shares.cluster
    for number, parts in enumerate(([[0, 1], [2, 3]], [[1, 2], [0], [3]])):
        own = network.at(number).averager(averager, 2)
        np.testing.assert_allclose(own.operator @ shares, shares, atol=1e-12)
        np.testing.assert_allclose(own.operator.sum(axis=0), 1)
        for part in parts:
            outside = [d for d in range(4) if d not in part]
            assert not own.operator[np.ix_(part, outside)].any()
            if averager == "paper":  # two servers agree at once
                within = np.outer(shares[part] / shares[part].sum(), np.ones(len(part)))
                np.testing.assert_allclose(own.operator[np.ix_(part, part)], within, atol=1e-12)
    with pytest.raises(InputError, match="needs a connected graph in every round"):
        train(network, 2, averager="all-reduce")


def test_matchings_that_are_drawn_bring_all_together() -> None:
    """No round's graph is connected; the model is what a product of their matrices says."""

    def matching(number: int) -> list[tuple[int, int]]:
        a, b, c, d = (int(server) for server in np.random.default_rng(number).permutation(4))
        return [(a, b), (c, d)]

    own, rounds = problem(), 6
    result = train(Network(CLUSTERS, "ring").changing(matching), 2 * rounds)
    gradients = [softmax_gradient(x, y, 3) for x, y in zip(own.inputs, own.targets, strict=True)]
    models, m = np.stack([vector(own.model)] * 4), np.array(SAMPLES) / sum(SAMPLES)
    for number in range(rounds):
        for _ in range(2):
            models = np.stack([w - LR * g(w) for w, g in zip(models, gradients, strict=True)])
        before = models.copy()
        for a, b in matching(number):
            flow = min(m[a], m[b]) / 2  # Metropolis: both have one neighbour
            for end, far in ((a, b), (b, a)):
                models[end] = before[end] + flow / m[end] * (before[far] - before[end])
    np.testing.assert_allclose(servers_of(result), models, rtol=0, atol=1e-10)
