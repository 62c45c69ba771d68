"""A network whose graph changes over time, from one inter-cluster aggregation to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from sdfeel.errors import InputError, located
from sdfeel.network.clusters import Clusters
from sdfeel.network.graphs import GraphLike, as_graph, check_connected
from sdfeel.network.network import Network

# A graph and for how many rounds it lasts.
Turn = tuple[GraphLike, int]
# Graphs of a function that are kept: those of more rounds are asked for again.
KEPT = 64


class ChangingNetwork(Network):
    """Clusters that stay, and a graph of their servers that does not.

    Args:
        graphs: one after the other, `[("ring", 5), ("star", 1)]`: five rounds of a ring, one of a
            star, and then from the beginning; a graph alone is for one round. Or a function of the
            round, counted from 0, which must give the same graph whenever it is called: a resumed
            run and every rank calls it anew.

    The graph of a single round need not be connected; those of a list must be together. `graph`,
    `zeta` and all that is asked of it without a round is of the first.
    """

    changes = True
    has_to_connect = False

    def __init__(
        self,
        clusters: Clusters | Sequence[Sequence[int]],
        graphs: Sequence[Any] | Callable[[int], GraphLike],
        samples: ArrayLike | None = None,
        clients_graph: GraphLike = "ring",
    ) -> None:
        self.clusters = clusters if isinstance(clusters, Clusters) else Clusters.of(clusters)
        self.graphs = graphs if callable(graphs) else _turns(graphs, self.servers)
        self._asked: dict[frozenset[frozenset[int]], Network] = {}
        super().__init__(self.clusters, self._graph_of(0), samples, clients_graph)

    @classmethod
    def of(cls, network: Network, graphs: Any) -> ChangingNetwork:
        """The clusters of a network on graphs that change.

        >>> ChangingNetwork.of(Network.ring(4), [("ring", 5), ("star", 1)])
        ChangingNetwork(4 clients, 4 servers, 2 graphs)
        """
        samples = np.array(network.shares.samples)
        return cls(network.clusters, graphs, samples, network.given_clients_graph)

    def at(self, number: int) -> Network:
        """The network of a round; the same object for the same graph."""
        graph = self._graph_of(number)
        key = frozenset(frozenset(link) for link in graph.edges())
        if key not in self._asked:
            if len(self._asked) >= KEPT:
                self._asked.clear()
            samples = np.array(self.shares.samples)
            self._asked[key] = _Snapshot(self.clusters, graph, samples, self.given_clients_graph)
        return self._asked[key]

    @property
    def turns(self) -> list[tuple[list[list[int]], int]] | None:
        """Links and rounds of each graph, one after the other; None of a function."""
        if callable(self.graphs):
            return None
        return [
            (sorted(sorted(link) for link in graph.edges()), rounds)
            for graph, rounds in self.graphs
        ]

    def with_samples(self, samples: ArrayLike) -> Network:
        counts = np.asarray(samples)
        return ChangingNetwork(self.clusters, self.graphs, counts, self.given_clients_graph)

    def _graph_of(self, number: int) -> nx.Graph:
        if callable(self.graphs):
            with located(f"graph of round {number}: "):
                return as_graph(self.graphs(number), self.servers, is_connected=False)
        left = number % sum(rounds for _, rounds in self.graphs)
        for graph, rounds in self.graphs:
            if left < rounds:
                return graph
            left -= rounds
        raise AssertionError

    def __repr__(self) -> str:
        graphs = "a function of the round"
        if not callable(self.graphs):
            graphs = f"{len(self.graphs)} graphs"
        return f"ChangingNetwork({self.clients} clients, {self.servers} servers, {graphs})"


def _turns(given: Any, servers: int) -> list[tuple[nx.Graph, int]]:
    example = '[("ring", 5), ("star", 1)]: a graph, and for how many rounds'
    if not isinstance(given, Sequence) or isinstance(given, str) or not len(given):
        raise InputError("graphs", given, f"a list, {example}; or a function of the round")
    turns = []
    for number, turn in enumerate(given):
        pair = isinstance(turn, Sequence) and not isinstance(turn, str) and len(turn) == 2
        timed = pair and isinstance(turn[1], int) and not isinstance(turn[1], bool)
        graph, rounds = turn if timed else (turn, 1)
        if rounds < 1:
            raise InputError(f"graphs[{number}]", rounds, "at least 1 round")
        try:
            turns.append((as_graph(graph, servers, is_connected=False), rounds))
        except InputError as mistake:
            where = f"graphs[{number}]: {mistake.field}"
            raise InputError(where, mistake.value, f"{mistake.remedy}; {example}") from None
    check_connected("graphs", nx.compose_all([graph for graph, _ in turns]))
    return turns


class _Snapshot(Network):
    """The network of one round."""

    has_to_connect = False
