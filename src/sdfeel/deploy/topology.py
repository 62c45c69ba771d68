"""What follows from the deployment file: the core's network, averager and schedule, by name."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.methods.codecs import CODECS, codecs_by_way
from sdfeel.algorithm.methods.corrections import Correction
from sdfeel.algorithm.paces import Synchronous
from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import SCHEMES
from sdfeel.clock import load_profile
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.pace import plans, seconds_of
from sdfeel.errors import InputError, closest
from sdfeel.network import Averager, Clusters, Network, Shares, build_averager

__all__ = ["Topology", "View"]

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


class Topology:
    """The deployment as the core sees it: numbers in the place of names."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.edges = [edge.name for edge in deployment.edges]
        self.clients = [client.name for client in deployment.clients]
        self.order = {name: number for number, name in enumerate(self.clients)}
        clusters = [
            [n for n, client in enumerate(deployment.clients) if client.edge == edge]
            for edge in self.edges
        ]
        samples = [client.samples for client in deployment.clients]
        self.network = Network(clusters, self._links(), samples)
        schedule = deployment.schedule
        self.tau1, self.tau2 = schedule.tau1, schedule.tau2
        self.periods = schedule.iterations // schedule.tau1
        self._views: dict[tuple[str, frozenset[tuple[str, str]]], View] = {}
        if self.averager.amplification > MAX_AMPLIFICATION:
            raise InputError(
                "schedule.averager",
                schedule.averager,
                f"its exchanges enlarge rounding errors {self.averager.amplification:.0e} times "
                "on this network; all-reduce gives the same mean without that",
            )
        if deployment.correction is not None:
            self.algorithm  # noqa: B018 - or what does not go together

    @cached_property
    def algorithm(self) -> Algorithm:
        """The simulator's own, for methods that ask what a period or a round is. In rounds only.

        Raises InputError if one part needs what another breaks.
        """
        deployment, rule = self.deployment, self.deployment.averaging
        schedule = Schedule(self.tau1, self.tau2, deployment.schedule.alpha)
        return Algorithm.of(
            SCHEMES["sd-feel"],
            self.network,
            profile=load_profile("paper"),  # nobody asks how long anything takes
            parameters=1,
            schedule=schedule,
            averager=deployment.schedule.averager,
            participation=1.0,
            averaging_rule=None if rule.rule == "mean" else rule.as_rule,
            server_optimizer=deployment.server_optimizer,
            optimizer=deployment.local.rule,
            correction=deployment.correction,
            methods=(),
            attacks=None,
            lr=deployment.lr,
            codecs=codecs_by_way({way: CODECS[name]() for way, name in deployment.codecs}),
            pace=Synchronous(),
            seed=deployment.seed,
        )

    @property
    def correction(self) -> Correction | None:
        """The correction with its numbers for this network."""
        if self.deployment.correction is None:
            return None
        correction = self.algorithm.parts["correction"]
        assert isinstance(correction, Correction)  # noqa: S101 - it is that of the file
        return correction

    def _links(self) -> list[tuple[int, int]] | str:
        links = self.deployment.graph.links
        if links is None:
            return self.deployment.graph.kind
        for name in (name for link in links for name in link):
            if name not in self.edges:
                raise InputError("graph.links", name, closest(name, self.edges))
        return [(self.edges.index(a), self.edges.index(b)) for a, b in links]

    @cached_property
    def averager(self) -> Averager:
        schedule = self.deployment.schedule
        return self.network.averager(schedule.averager, schedule.alpha)

    def seconds(self, edge: str) -> float:
        """T_d of an edge that waits for no other cluster; 0 in rounds."""
        return self._seconds[edge]

    def plan(self, edge: str) -> int:
        """The periods that an edge makes."""
        return self._plans[edge]

    @cached_property
    def _seconds(self) -> dict[str, float]:
        return seconds_of(self.deployment)

    @cached_property
    def _plans(self) -> dict[str, int]:
        return plans(self.deployment)

    def counted(self, done: int, edge: str, me: str) -> int:
        """How far an edge is, in periods of another one."""
        return done * self.plan(me) // self.plan(edge)

    @cached_property
    def degree(self) -> int:
        """The largest number of neighbours."""
        return max(int(degree) for _, degree in self.network.graph.degree())

    def is_inter(self, period: int) -> bool:
        """Whether exchanges follow the averaging inside clusters at the end of this period."""
        return period % self.tau2 == 0

    def neighbours(self, edge: str) -> list[str]:
        return [self.edges[n] for n in self.network.neighbours(self.edges.index(edge))]

    def share(self, edge: str) -> float:
        """m-tilde of an edge: the weight of its model in the mean."""
        return float(self.network.shares.cluster[self.edges.index(edge)])

    @cached_property
    def weights_digest(self) -> str:
        """Two edges can only keep a weighted mean together if this is the same at both."""
        counts: Counter[str] = Counter()
        for client in self.deployment.clients:
            counts[client.edge] += client.samples
        return hashlib.sha256(repr(sorted(counts.items())).encode()).hexdigest()[:16]

    def leads(self, edge: str, other: str) -> bool:
        """Whether `edge` dials and decides on the link to `other`."""
        return self.edges.index(edge) < self.edges.index(other)

    def samples(self, client: str) -> int:
        return self.deployment.clients[self.order[client]].samples

    def weights(self, clients: Sequence[str]) -> list[float]:
        """m-hat over those who took part in a period, guests of other edges among them."""
        counts = [self.samples(name) for name in clients]
        present = Shares.of(Clusters.of([range(len(counts))]), np.array(counts))
        return [float(weight) for weight in present.within]

    def allowed(self, edge: str) -> frozenset[str]:
        """The clients that an edge serves."""
        return self._allowed[edge]

    @cached_property
    def _allowed(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {edge: set() for edge in self.edges}
        for client in self.deployment.clients:
            for edge in (client.edge, *client.fallbacks):
                found[edge].add(client.name)
        for one in self.deployment.edges:
            if one.allow is not None:
                found[one.name] = set(one.allow)
        return {edge: frozenset(names) for edge, names in found.items()}

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
