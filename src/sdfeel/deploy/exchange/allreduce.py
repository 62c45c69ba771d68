"""The weighted mean over all edges that are there, by messages between neighbours only.

Means over subtrees go up a tree of least depth, the result goes down, then the word. All use the
result or nobody does: the root decides once everybody has said that they hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sdfeel.deploy.exchange.decision import Decider
from sdfeel.deploy.link.ledger import Doubt, Key
from sdfeel.deploy.link.link import Link
from sdfeel.deploy.model.offload import offload
from sdfeel.deploy.model.vectors import Change, Vector, combine
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology, View

__all__ = ["AllReduce"]


@dataclass
class AllReduce:
    """One edge's part in the all-reduce of one period."""

    me: str
    topology: Topology
    view: View
    links: dict[str, Link]
    folder: Path
    decider: Decider
    key: Key

    def __post_init__(self) -> None:
        root, self._parents = self.view.tree()
        self.children = [self.links[n] for n, above in self._parents.items() if above == self.me]
        self.parent = None if root == self.me else self.links[self._parents[self.me]]
        # A link that was replaced since the start may have lost a message: it is out.
        self._generations = {link.peer: link.generation for link in self._mine}

    @property
    def _mine(self) -> list[Link]:
        return [*self.children, *([self.parent] if self.parent else [])]

    @property
    def peers(self) -> list[str]:
        return [link.peer for link in self._mine]

    def _mass(self, edge: str) -> float:
        """The weight of an edge and all below it."""
        below = [child for child, above in self._parents.items() if above == edge]
        return self.topology.share(edge) + sum(self._mass(child) for child in below)

    async def run(self, model: Vector) -> Vector | None:
        """The mean if everybody uses it, None if nobody does."""
        key = self.key
        for link in self._mine:
            link.deciding.add(key)
        result = await self._take_part(model)
        use = result is not None
        if self.parent is None or key not in self.parent.memory.doubts:
            for child in self.children:
                child.record(key, use)
                child.say(key, v1.Word.USE if use else v1.Word.SKIP)
        if self.parent is not None and key in self.parent.deciding:
            self.parent.record(key, use=False)
            self.parent.say(key, v1.Word.REFUSE, "not everybody below is there")
        return result

    async def _take_part(self, model: Vector) -> Vector | None:
        mean = await self._sum_up(model)
        if mean is not None and self.parent is not None:
            mean = await self._from_parent(mean, self.parent)
        if mean is None or not await self._hand_down(mean):
            return None
        if self.parent is None:
            return mean
        below = [child.peer for child in self.children]
        doubt = Doubt(Change.towards(model, mean, 1.0), below)
        return mean if await self.decider.obey(self.parent, self.key, doubt) else None

    def _is_over(self, links: Sequence[Link]) -> bool:
        return any(link.passed(self.key, self._generations[link.peer]) for link in links)

    def _take(self, link: Link, stage: v1.Stage) -> Vector | None:
        announced, vector = link.offers.pop((self.key, stage), (None, None))
        return vector if announced is not None and announced.view == self.view.digest else None

    async def _sum_up(self, model: Vector) -> Vector | None:
        """The mean over this edge and all below it."""
        children, slot = self.children, (self.key, v1.Stage.UP)
        await self.decider.until(
            lambda: self._is_over(children) or all(slot in child.offers for child in children),
            *children,
        )
        parts = [part for child in children if (part := self._take(child, v1.Stage.UP))]
        if len(parts) < len(children) or self._is_over(children):
            return None
        total = self._mass(self.me)
        masses = [self.topology.share(self.me), *(self._mass(child.peer) for child in children)]
        weights = [mass / total for mass in masses]
        return await offload(model.is_large, lambda: combine([model, *parts], weights, self.folder))

    async def _from_parent(self, mean: Vector, parent: Link) -> Vector | None:
        """Sends what was summed up, and waits for the mean over everybody."""
        key, slot = self.key, (self.key, v1.Stage.DOWN)
        if self._is_over([parent]):
            return None
        parent.offer(mean, key, view=self.view.digest, stage=v1.Stage.UP)
        await self.decider.until(
            lambda: self._is_over([parent]) or slot in parent.offers or key in parent.words,
            parent,
        )
        result = self._take(parent, v1.Stage.DOWN)
        return None if self._is_over([parent]) else result

    async def _hand_down(self, mean: Vector) -> bool:
        """Whether everybody below holds the result."""
        children, key = self.children, self.key
        for child in children:
            child.offer(mean, key, view=self.view.digest, stage=v1.Stage.DOWN)
        await self.decider.until(
            lambda: self._is_over(children) or all(key in child.ready for child in children),
            *children,
        )
        return all(key in child.ready for child in children) and not self._is_over(children)
