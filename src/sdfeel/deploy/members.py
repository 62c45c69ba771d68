"""Who is a member of a deployment: edges, their clients and links, and what each counts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np

from sdfeel.deploy.config import Deployment
from sdfeel.errors import InputError, closest
from sdfeel.network import Averager, Clusters, Network, Shares, build_averager

__all__ = ["Members", "View"]

# Above it nothing that servers exchange in float32 would mean anything.
MAX_AMPLIFICATION = 1e4
VIEWS = 64  # that are kept: links come and go, and the same few views come back


@dataclass(frozen=True)
class View:
    """The part of the network that an edge is in, and the averager to use there.

    edges     by name, in the order of the deployment file; entry n has row and column n
    digest    two edges mix only if they see the same part; "" when it does not matter
    """

    edges: tuple[str, ...]
    graph: nx.Graph
    averager: Averager
    digest: str

    def weight(self, number: int, sender: str, receiver: str) -> float:
        """p[j, d] of exchange `number`, eq. (5)."""
        P = self.averager.exchange(number)
        return float(P[self.edges.index(sender), self.edges.index(receiver)])

    def tree(self) -> tuple[str, dict[str, str]]:
        """For all-reduce: the root and each other edge's parent, a tree of least depth."""
        root = min(nx.center(self.graph))
        parents = {
            self.edges[child]: self.edges[parent]
            for child, parent in nx.bfs_predecessors(self.graph, root, sort_neighbors=sorted)
        }
        return self.edges[root], parents


class Members:
    """The members of one period, by name; `order` is the place of a client in the file."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self.edges = [edge.name for edge in deployment.edges]
        self.clients = [client.name for client in deployment.clients]
        self.order = {name: number for number, name in enumerate(self.clients)}
        clusters = [
            [n for n, client in enumerate(deployment.clients) if client.edge == edge]
            for edge in self.edges
        ]
        samples = [client.samples for client in deployment.clients]
        self.network = Network(clusters, self._links(), samples)
        self._views: dict[tuple[str, frozenset[tuple[str, str]]], View] = {}
        if self.averager.amplification > MAX_AMPLIFICATION:
            raise InputError(
                "schedule.averager",
                deployment.schedule.averager,
                f"its exchanges enlarge rounding errors {self.averager.amplification:.0e} times "
                "on this network; all-reduce gives the same mean without that",
            )

    def _links(self) -> list[tuple[int, int]] | str:
        links = self._deployment.graph.links
        if links is None:
            return self._deployment.graph.kind
        for name in (name for link in links for name in link):
            if name not in self.edges:
                raise InputError("graph.links", name, closest(name, self.edges))
        return [(self.edges.index(a), self.edges.index(b)) for a, b in links]

    @cached_property
    def averager(self) -> Averager:
        schedule = self._deployment.schedule
        return self.network.averager(schedule.averager, schedule.alpha)

    @cached_property
    def degree(self) -> int:
        """The largest number of neighbours."""
        return max(int(degree) for _, degree in self.network.graph.degree())

    def neighbours(self, edge: str) -> list[str]:
        return [self.edges[n] for n in self.network.neighbours(self.edges.index(edge))]

    def share(self, edge: str) -> float:
        """m-tilde of an edge: the weight of its model in the mean."""
        return float(self.network.shares.cluster[self.edges.index(edge)])

    @cached_property
    def weights_digest(self) -> str:
        """Two edges can only keep a weighted mean together if this is the same at both."""
        counts: Counter[str] = Counter()
        for client in self._deployment.clients:
            counts[client.edge] += client.samples
        return hashlib.sha256(repr(sorted(counts.items())).encode()).hexdigest()[:16]

    def leads(self, edge: str, other: str) -> bool:
        """Whether `edge` dials and decides on the link to `other`."""
        return self.edges.index(edge) < self.edges.index(other)

    def samples(self, client: str) -> int:
        return self._deployment.clients[self.order[client]].samples

    def weights(self, clients: Sequence[str]) -> list[float]:
        """m-hat over those who took part in a period, guests of other edges among them."""
        counts = [self.samples(name) for name in clients]
        present = Shares.of(Clusters.of([range(len(counts))]), np.array(counts))
        return [float(weight) for weight in present.within]

    def home(self, edge: str) -> frozenset[str]:
        """The clients of an edge's own cluster."""
        return self._home[edge]

    @cached_property
    def _home(self) -> dict[str, frozenset[str]]:
        clients: dict[str, set[str]] = {edge: set() for edge in self.edges}
        for client in self._deployment.clients:
            clients[client.edge].add(client.name)
        return {edge: frozenset(names) for edge, names in clients.items()}

    def allowed(self, edge: str) -> frozenset[str]:
        """The clients that an edge serves."""
        return self._allowed[edge]

    @cached_property
    def _allowed(self) -> dict[str, frozenset[str]]:
        clients_by_edge: dict[str, set[str]] = {edge: set() for edge in self.edges}
        for client in self._deployment.clients:
            for edge in (client.edge, *client.fallbacks):
                clients_by_edge[edge].add(client.name)
        for server in self._deployment.edges:
            if server.allow is not None:
                clients_by_edge[server.name] = set(server.allow)
        return {edge: frozenset(names) for edge, names in clients_by_edge.items()}

    @cached_property
    def whole(self) -> View:
        """Everybody there."""
        return View(tuple(self.edges), self.network.graph, self.averager, "")

    def view(self, edge: str, up: Collection[tuple[str, str]]) -> View:
        """The part that `edge` is in when only the links `up` work.

        `paper`, `metropolis` and `chebyshev` keep the exchange of the whole network: a missing
        link's weight goes back to the diagonal and disagreement still never grows.
        """
        if not self.averager.whole_graph:
            return self.whole
        key = edge, frozenset(up)
        if key not in self._views:
            while len(self._views) >= VIEWS:
                self._views.pop(next(iter(self._views)))
            self._views[key] = self._make_view(edge, up)
        return self._views[key]

    def _make_view(self, edge: str, up: Collection[tuple[str, str]]) -> View:
        live = nx.Graph()
        live.add_nodes_from(range(len(self.edges)))
        for a, b in self.network.graph.edges():
            if (self.edges[a], self.edges[b]) in up or (self.edges[b], self.edges[a]) in up:
                live.add_edge(a, b)
        part = sorted(nx.node_connected_component(live, self.edges.index(edge)))
        inside = live.subgraph(part)
        links = sorted((min(a, b), max(a, b)) for a, b in inside.edges())
        about = [links, self.weights_digest]
        digest = hashlib.sha256(repr(about).encode()).hexdigest()[:16]
        if len(links) == self.network.graph.number_of_edges():
            return View(tuple(self.edges), self.network.graph, self.averager, digest)
        graph = nx.convert_node_labels_to_integers(inside, ordering="sorted")
        shares = self.network.shares.cluster[part]
        averager = build_averager(self.averager.name, graph, shares / shares.sum())
        return View(tuple(self.edges[n] for n in part), graph, averager, digest)
