"""Which graph: the planner tries the one that links make fastest, and takes what was measured."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import sdfeel
from sdfeel.clock import profile_of
from sdfeel.planner.candidate import Place
from sdfeel.planner.graphs import other_networks
from sdfeel.simulation.settings import Settings

RATES = dict.fromkeys(
    ("cpu", "client_server", "server_server", "server_cloud", "client_cloud"), 1e6
)
SLOW = profile_of({"flops_per_step": 1e4, "rates": RATES, "latency": {"0-1": 2.0}}, "slow link")
EQUAL = profile_of({"flops_per_step": 1e4, "rates": RATES}, "equal links")


def data():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 4)) * 2
    pairs = []
    for client in range(10):
        labels = rng.integers(0, 3, 20)
        labels[:12] = client % 3
        pairs.append((centres[labels] + rng.normal(size=(20, 4)), labels))
    return pairs


def plan(profile, **more):
    torch.manual_seed(0)
    return sdfeel.plan(
        torch.nn.Linear(4, 3).double(), data(), network=sdfeel.Network.ring(5, 2), profile=profile,
        target_loss=0.5, pilot=300, racers=2, choose={"tau1": (1, 5), "tau2": 1}, lr=0.1,
        tell=lambda line: None, engine="vectorised", **more,
    )  # fmt: skip


def test_a_graph_without_the_slow_link_is_chosen() -> None:
    """A ring over a link that is 2 s late, against a tree that leaves it out."""
    any_graph = plan(SLOW, graph="any")
    graph = any_graph.report["graph"]
    assert graph["name"] != "given"
    assert [0, 1] not in graph["links"]
    assert graph["measured"][graph["name"]] < 0.8 * graph["measured"]["given"]
    assert any_graph.place.network.graph.number_of_edges() == len(graph["links"])
    assert any_graph.reasons[1].startswith("graph: ")
    # What is recommended trains there as fast as it says.
    result = sdfeel.train(
        torch.nn.Linear(4, 3).double(), data(), network=any_graph.place.network, profile=SLOW,
        until=any_graph.seconds, lr=0.1, **any_graph.settings,
    )  # fmt: skip
    assert result.history["train_loss"].min() < 0.7


def test_the_given_graph_stays_unless_another_is_asked_for() -> None:
    given = plan(SLOW)
    assert "graph" not in given.report
    assert min(given.report["other_topologies"].values()) < 0.97


def test_a_plan_on_any_graph_can_be_kept_and_read(tmp_path) -> None:
    from sdfeel.planner.saved import read_plan

    chosen = plan(SLOW, graph="any")
    chosen.save(tmp_path)
    again = read_plan(tmp_path)
    assert again.report["graph"] == chosen.report["graph"]
    assert set(again.place.network.graph.edges()) == set(chosen.place.network.graph.edges())


def place(profile, network) -> Place:
    return Place(Settings(), network.with_samples([20] * network.clients), profile, 100)


def test_overlays_of_fast_links_are_tried_where_links_differ() -> None:
    network = sdfeel.Network.ring(5, 2)
    assert "fastest tree" not in other_networks(place(EQUAL, network))
    names = other_networks(place(SLOW, network))
    tree = names["fastest tree"].graph
    assert not tree.has_edge(0, 1)
    assert tree.number_of_edges() == 4
    assert "ring" not in names  # it is the given one


def test_underlays_give_overlays_of_their_own() -> None:
    profile = profile_of({"flops_per_step": 1e4, "rates": RATES, "underlay": "gaia"}, "gaia")
    networks = other_networks(place(profile, sdfeel.Network.ring(11, 1)))
    assert {"star", "fastest tree", "short ring", "full"} <= set(networks)
    assert networks["short ring"].graph.number_of_edges() == 11


def test_other_words_are_refused() -> None:
    with pytest.raises(sdfeel.InputError, match=r"graph = 'ring'.*any"):
        plan(EQUAL, graph="ring")


@pytest.mark.parametrize(("servers", "most", "tried"), [(5, 4, False), (5, 5, True), (5, 6, True)])
def test_overlays_are_looked_for_among_so_many_servers(monkeypatch, servers, most, tried) -> None:
    from sdfeel.planner import graphs

    monkeypatch.setattr(graphs, "MOST_SERVERS", most)
    networks = other_networks(place(SLOW, sdfeel.Network.ring(servers, 1)))
    assert ("fastest tree" in networks) == tried


def test_two_servers_have_one_graph() -> None:
    assert "fastest tree" not in other_networks(place(SLOW, sdfeel.Network.build("path", 2, 1)))
