"""Networks that a file describes."""

from __future__ import annotations

import networkx as nx
import pytest

from sdfeel.errors import InputError
from sdfeel.experiments.config import NetworkConfig
from sdfeel.experiments.run import build_network
from sdfeel.network import Clusters

CLUSTERS = [[0, 7], [1, 6], [2, 5], [3], [4]]


@pytest.mark.parametrize(
    "clusters", [{"clusters": CLUSTERS}, {"servers": 5, "clients_per_server": [2, 2, 2, 1, 1]}]
)
def test_options_of_a_graph_count_however_the_clusters_are_given(clusters: dict) -> None:
    def edges(seed: int) -> set[frozenset[int]]:
        table = {"graph": "random", "options": {"degree": 3.0, "seed": seed}}
        network = build_network(NetworkConfig.model_validate({**table, **clusters}))
        assert nx.is_connected(network.graph)
        return {frozenset(link) for link in network.graph.edges()}

    assert edges(0) == edges(0)
    assert len({frozenset(edges(seed)) for seed in range(6)}) > 1


def test_clusters_and_another_number_of_servers_are_refused() -> None:
    """A preset's 10 servers, which are the default, give way."""
    with pytest.raises(InputError, match=r"network\.servers = 3: beside clusters of 5 servers"):
        build_network(NetworkConfig(clusters=CLUSTERS, servers=3))
    for servers in (5, 10):
        assert build_network(NetworkConfig(clusters=CLUSTERS, servers=servers)).servers == 5


def test_clusters_are_those_of_the_list() -> None:
    network = build_network(NetworkConfig(clusters=CLUSTERS))
    assert network.clusters == Clusters.of(CLUSTERS)
    assert network.graph.number_of_edges() == 5
