"""A network: clients in clusters, and the graph of their edge servers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from sdfeel.errors import InputError, located
from sdfeel.network.averagers import Averager, Builder, build_averager
from sdfeel.network.clusters import Clusters, Shares
from sdfeel.network.graphs import GraphLike, as_graph, build_graph
from sdfeel.network.mixing import MixingMatrix, paper_mixing
from sdfeel.validation import whole_number


class Network:
    """Clusters of clients and a connected graph of their edge servers.

    clusters       a list of client numbers for each server: `[[0, 1], [2]]`
    graph          a networkx graph on 0..D-1, a list of links, or a name (`"ring"`); the live page
                   draws servers at `pos` of its nodes if they all have one
    samples        |S_i| per client; `train` fills it in from the data
    clients_graph  who is whose neighbour where clients exchange models without servers: as `graph`,
                   on the clients' numbers; by its name, cluster by cluster

    >>> sdfeel.Network(clusters=[[0, 1], [2]], graph=[(0, 1)]).zeta
    0.0
    """

    changes = False  # whether the graph is another one in later rounds
    has_to_connect = True  # whether every server must be reached from every other

    def __init__(
        self,
        clusters: Clusters | Sequence[Sequence[int]],
        graph: GraphLike = "ring",
        samples: ArrayLike | None = None,
        clients_graph: GraphLike = "ring",
    ) -> None:
        self.clusters = clusters if isinstance(clusters, Clusters) else Clusters.of(clusters)
        self.graph: nx.Graph = as_graph(
            graph, self.clusters.servers, is_connected=self.has_to_connect
        )
        self.shares = Shares.of(self.clusters, samples)
        self.given_clients_graph = clients_graph

    @classmethod
    def build(
        cls, graph: str, servers: int, clients_per_server: int | Sequence[int] = 1, **options: float
    ) -> Network:
        """A network by the name of its graph; clients are numbered server by server."""
        servers = whole_number(servers, field="servers")
        given: list[Any] = [clients_per_server] * servers
        if isinstance(clients_per_server, Sequence | np.ndarray):
            given = list(clients_per_server)
        try:
            sizes = [whole_number(size, field="clients_per_server") for size in given]
        except InputError:
            sizes = []
        if len(sizes) != servers:
            remedy = f"a number of at least 1, or a list of {servers} of them"
            raise InputError("clients_per_server", clients_per_server, remedy)
        return cls(Clusters.of_sizes(sizes), build_graph(graph, servers, **options))

    @classmethod
    def ring(cls, servers: int, clients_per_server: int | Sequence[int] = 1) -> Network:
        """The paper's default: every server has two neighbours."""
        return cls.build("ring", servers, clients_per_server)

    @property
    def clients(self) -> int:
        return self.clusters.clients

    @property
    def servers(self) -> int:
        return self.clusters.servers

    def with_samples(self, samples: ArrayLike) -> Network:
        """Return the same network with how much data each client holds."""
        return Network(self.clusters, self.graph, np.asarray(samples), self.given_clients_graph)

    def changing(self, graphs: Any) -> Network:
        """Return the same clusters on another graph in later rounds.

        >>> Network.ring(4).changing([("ring", 5), ("star", 1)])
        ChangingNetwork(4 clients, 4 servers, 2 graphs)

        Args:
            graphs: one after the other, with the rounds that each lasts; or a function of the
                round, counted from 0. See `ChangingNetwork`.
        """
        from sdfeel.network.changing import ChangingNetwork  # which is a Network

        return ChangingNetwork.of(self, graphs)

    def at(self, number: int) -> Network:  # noqa: ARG002
        """The network in a round, counted from 0: always this one; see `ChangingNetwork`."""
        return self

    def merged(self) -> Network:
        """Return all clients under one server: what a cloud sees."""
        everyone = [sorted(client for members in self.clusters.members for client in members)]
        return Network(everyone, nx.empty_graph(1), np.array(self.shares.samples))

    def apart(self) -> Network:
        """Every client as a server of its own, on the graph of the clients."""
        alone = Clusters.of_sizes([1] * self.clients)
        return Network(alone, self.clients_graph, np.array(self.shares.samples))

    @cached_property
    def clients_graph(self) -> nx.Graph:
        """Return the graph of the clients, on their numbers."""
        with located("clients_"):
            graph = as_graph(self.given_clients_graph, self.clients)
        if not isinstance(self.given_clients_graph, str):
            return graph
        order = [client for members in self.clusters.members for client in members]
        return nx.relabel_nodes(graph, dict(enumerate(order)))

    @property
    def turns(self) -> list[tuple[list[list[int]], int]] | None:
        """Of a graph that changes: links and rounds, one after the other; None where it does not,
        or as a function says.
        """
        return None

    @cached_property
    def mixing(self) -> MixingMatrix:
        """The paper's mixing matrix P and zeta."""
        return paper_mixing(self.graph, self.shares.cluster)

    @property
    def zeta(self) -> float:
        return self.mixing.zeta

    def neighbours(self, server: int) -> list[int]:
        """N_d: the one-hop neighbours of a server."""
        return sorted(self.graph.neighbors(server))

    def averager(self, averager: str | Averager | Builder = "paper", alpha: int = 1) -> Averager:
        """An averager of `sdfeel.AVERAGERS`, or one's own, on this network."""
        return build_averager(averager, self.graph, self.shares.cluster, alpha)

    def __repr__(self) -> str:
        return (
            f"Network({self.clients} clients, {self.servers} servers, "
            f"{self.graph.number_of_edges()} links)"
        )
