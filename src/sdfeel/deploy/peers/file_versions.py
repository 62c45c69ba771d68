"""Which deployment file every edge has: until all have the newer one, the older holds.

An operator copies a file from machine to machine and restarts one edge after the other. An edge
that is started with a newer file goes on by the one that it used before, and says so. Once all
edges that are in both files have said that they have the newer one, each goes over to it by itself:
it leaves as if it was stopped, and begins again from its checkpoint.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass

from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.concern import Concern
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.link_states import LinkStates
from sdfeel.deploy.topology import Topology

__all__ = ["FileVersions", "file_digest"]


def file_digest(topology: Topology) -> str:
    """Of what edges and clients must know the same of: who is there, and where."""
    deployment = topology.deployment
    links = sorted(topology.at(0).network.graph.edges())
    clients = [client.model_dump(mode="json") for client in deployment.clients]
    allowed = [edge.allow for edge in deployment.edges]
    about = repr((topology.at(0).edges, links, clients, allowed))
    return hashlib.sha256(about.encode()).hexdigest()[:16]


@dataclass
class FileVersions:
    """Of one edge.

    newer      what holds once all edges have it; None: this edge knows no other than the present
    has_begun  this life began with a file that all edges have now: others may still wait for that
    is_over    this edge is to begin again with the newer file
    """

    node: Node
    states: LinkStates
    newer: Topology | None = None
    has_begun: bool = False
    is_over: bool = False

    def __post_init__(self) -> None:
        topology = self.node.topology
        self.newest = file_digest(self.newer or topology)
        both = set(topology.at(0).edges) & set((self.newer or topology).at(0).edges)
        self._both = both - {self.node.name}
        self._told: tuple[list[str], list[str]] = ([], [])
        self.states.file = self._tell

    def _tell(self) -> str:
        """What the others hear; nothing while nobody has a newer file."""
        is_known = any(state.file for state in self.states.others_states())
        return self.newest if self.newer is not None or self.has_begun or is_known else ""

    def _files(self) -> dict[str, str]:
        return {state.edge: state.file for state in self.states.others_states()}

    @property
    def without(self) -> list[str]:
        """The edges that do not have the newer file yet, as far as we know."""
        files = self._files()
        return sorted(edge for edge in self._both if files.get(edge) != self.newest)

    @property
    def elsewhere(self) -> list[str]:
        """The edges that have another file than this one."""
        return sorted(edge for edge, file in self._files().items() if file not in ("", self.newest))

    @property
    def is_known(self) -> bool:
        """Whether all edges have the newer file, as far as we know."""
        return self.newer is not None and not self.without

    def look(self) -> None:
        """Tell what has changed."""
        now = (self.without if self.newer else [], [] if self.newer else self.elsewhere)
        if now == self._told:
            return
        had_other = bool(self._told[1])
        self._told = now
        without, elsewhere = now
        if without:
            self.node.tell(facts.OlderFileHolds(without=without))
        if elsewhere or had_other:
            self.node.tell(facts.OtherFile(edges=elsewhere))

    async def until_all_have_it(self) -> None:
        """And then a little longer, so that all others hear of it too."""
        await self.node.signal.until(lambda: self.is_known)
        loop = asyncio.get_running_loop()
        at = loop.time() + self.node.deployment.deadlines.ping
        await self.node.signal.until(lambda: False, lambda: at)
        self.is_over = True
        self.node.tell(facts.NewerFileHolds())

    @property
    def warnings(self) -> list[Concern]:
        if self.newer is not None:
            names = ", ".join(self.without)
            text = f"deployment file: the older one holds until these edges have it too: {names}"
            return [Concern("file", text)]
        if self.elsewhere:
            names = ", ".join(self.elsewhere)
            text = f"deployment file: another one is at {names}; every edge needs the same"
            return [Concern("file", text)]
        return []
