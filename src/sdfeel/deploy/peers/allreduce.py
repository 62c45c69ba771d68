"""The weighted mean over all edges that are there, by messages between neighbours only.

Means over subtrees go up a tree of least depth, the result goes down, then the decision: all use
the result or nobody does. The root coordinates, once everybody has said that they hold it.

Each link of the tree carries a flow by itself. With up_c the mean over child c and all below it,
mass_c their weight and u the result, the parent gives its child's subtree mass_c (u - up_c):

    child    change_c = (mass_c / m-tilde_c) (u - up_c)
    parent   change_d = -(mass_c / m-tilde_d) (u - up_c)

Their weighted sum is zero, and over all links of an edge the changes add up to u - w_d. So a link
that only one end has on its disk after a death can be taken back there like that of any other
exchange, and the weighted mean is what it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from sdfeel.deploy.model.vectors import Change, Vector, combine
from sdfeel.deploy.node import Node
from sdfeel.deploy.offload import offload
from sdfeel.deploy.peers.agreement import Id, Standing, Transaction
from sdfeel.deploy.peers.exchange_timeout import ExchangeTimeout
from sdfeel.deploy.peers.link import Key, Link, Offer
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import View

__all__ = ["AllReduce"]

UP, DOWN = v1.Stage.UP, v1.Stage.DOWN


@dataclass
class AllReduce:
    """One edge's part in the all-reduce of one period."""

    node: Node
    view: View
    links: Links
    timeout: ExchangeTimeout
    key: Key

    def __post_init__(self) -> None:
        self.me, self.topology = self.node.name, self.node.topology
        root, self._parents = self.view.tree()
        self.children = [name for name, above in self._parents.items() if above == self.me]
        self.parent = None if root == self.me else self._parents[self.me]
        # A link that was replaced since the start may have lost a message: it is out.
        self._generations = {peer: self.links[peer].generation for peer in self.peers}
        self._start = asyncio.get_running_loop().time()
        self._ups: dict[str, Vector] = {}
        self._below: dict[str, Transaction[Change]] = {}

    @property
    def peers(self) -> list[str]:
        return [*self.children, *([self.parent] if self.parent else [])]

    def _mass(self, edge: str) -> float:
        """The weight of an edge and all below it."""
        below = [child for child, above in self._parents.items() if above == edge]
        return self.topology.share(edge) + sum(self._mass(child) for child in below)

    def _links(self, peers: Iterable[str]) -> list[Link]:
        return [self.links[peer] for peer in peers]

    def _is_over(self, peers: Iterable[str]) -> bool:
        return any(self._has_left(self.links[peer]) for peer in peers)

    def _has_left(self, link: Link) -> bool:
        """Whether a neighbour cannot do its part; it may have come to another view meanwhile."""
        period, view = link.announced
        is_elsewhere = period == self.key[0] and view != self.view.digest
        return is_elsewhere or link.has_left(self.key, self._generations[link.peer])

    async def run(self, model: Vector) -> Vector | None:
        """The mean if everybody uses it, None if nobody does."""
        crowded = any(self.links.agreement.is_crowded(p, self.key[0]) for p in self.peers)
        own = None if crowded else await self._sum_up(model)
        result = None if own is None else await self._from_above(own)
        if own is None or result is None or not await self._hand_down(*result):
            self._give_up()
            return None
        mean, id_ = result
        if self.parent is None:
            for transaction in self._below.values():
                self.links.commit(transaction)
            return mean
        return mean if await self._obey(mean, own, id_, self.parent) else None

    def _give_up(self) -> None:
        """Tells everybody, so that nobody waits."""
        for peer in self.peers:
            if peer in self._below:
                self.links.abort(self._below[peer])
            else:
                self.links[peer].count(use=False)
                self.links[peer].refuse(self.key, "not everybody is there")

    def _take(self, peer: str, stage: v1.Stage) -> Offer | None:
        """A neighbour's model; if we waited for it in vain, that is noted."""
        offer = self.links[peer].take(self.key, stage)
        is_leaf = peer not in self._parents.values()  # others may wait for somebody themselves
        if offer is None and is_leaf and not self._is_over(self.peers):
            self.links[peer].held_up(self._start)
        return offer

    async def _sum_up(self, model: Vector) -> Vector | None:
        """The mean over this edge and all below it."""
        key, children = self.key, self.children
        links = self._links(children)
        await self.timeout.until(
            lambda: self._is_over(children) or all(link.has(key, UP) for link in links), links
        )
        for child in children:
            offer = self._take(child, UP)
            if offer is not None and offer.view == self.view.digest:
                self._ups[child] = offer.vector
        if len(self._ups) < len(children) or self._is_over(self.peers):
            return None
        masses = [self.topology.share(self.me), *(self._mass(child) for child in children)]
        weights = [mass / self._mass(self.me) for mass in masses]
        parts = [model, *self._ups.values()]
        return await offload(model.is_large, lambda: combine(parts, weights, self.node.folder))

    async def _from_above(self, own: Vector) -> tuple[Vector, Id] | None:
        """The mean over everybody: ours at the root, else the parent's."""
        if self.parent is None:
            return own, self.links.agreement.draw(*self.key)
        above, key = self.links[self.parent], self.key
        above.offer(own, key, view=self.view.digest, stage=UP)
        await self.timeout.until(
            lambda: self._is_over(self.peers) or above.has(key, DOWN), self._links(self.peers)
        )
        offer = self._take(self.parent, DOWN)
        if offer is None or offer.view != self.view.digest or self._is_over(self.peers):
            return None
        is_new = all(self.links.agreement.is_new(peer, offer.id) for peer in self.peers)
        return (offer.vector, offer.id) if is_new else None

    async def _hand_down(self, mean: Vector, id_: Id) -> bool:
        """Whether everybody below holds the result, and has promised to do as decided."""
        agreement, below = self.links.agreement, self._below
        for child in self.children:
            below[child] = agreement.begin(child, id_)
            fields = {"view": self.view.digest, "stage": DOWN, "ballot": id_.ballot}
            self.links[child].offer(mean, self.key, **fields)
        await self.timeout.until(
            lambda: self._is_over(self.peers) or all(t.vote is not None for t in below.values()),
            self._links(self.children),
        )
        if self._is_over(self.children):
            return False
        share = self.topology.share(self.me)
        for child, transaction in below.items():
            if not transaction.has_vote(self._ups[child].sha256):
                return False
            weight = self._mass(child) / share
            agreement.voted(transaction, Change.towards(mean, self._ups[child], weight))
        return True

    async def _obey(self, mean: Vector, own: Vector, id_: Id, parent: str) -> bool:
        """Promises the parent to do as decided, for all below as well; whether to use the mean."""
        weight = self._mass(self.me) / self.topology.share(self.me)
        change = Change.towards(own, mean, weight)
        transaction = self.links.prepare(parent, id_, change, own.sha256)
        await self.timeout.until(
            lambda: transaction.state is not Standing.PREPARED, [self.links[parent]]
        )
        self.links.give_up_waiting(transaction)
        for below in self._below.values():
            if transaction.state is Standing.IN_DOUBT:
                self.links.give_up_waiting(below)
            elif not transaction.used:
                self.links.abort(below)
        return transaction.used
