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

from collections.abc import Callable
from dataclasses import dataclass

from sdfeel.deploy.members import View
from sdfeel.deploy.model.vectors import Change, Vector, combine
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.agreement import Id, Standing, Transaction
from sdfeel.deploy.peers.exchange_timeout import ExchangeTimeout
from sdfeel.deploy.peers.link import Key, Link, Offer
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.waiting import offload

__all__ = ["AllReduce"]

UP, DOWN = v1.Stage.UP, v1.Stage.DOWN


@dataclass
class AllReduce:
    """One edge's part in the all-reduce of one period.

    is_elsewhere  it has ended because a neighbour sees another part of the network
    """

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
        self._high, self._deep = self._reach(self.me, self.parent), self._depth(self.me)
        self._levels = self._reach(root, None)
        self._stages = self.timeout.stages()
        self.is_elsewhere = False
        self._ups: dict[str, Vector] = {}
        self._open: dict[str, Transaction[Change]] = {}

    def _share(self, edge: str) -> float:
        return self.topology.at(self.key[0]).share(edge)

    @property
    def peers(self) -> list[str]:
        return [*self.children, *([self.parent] if self.parent else [])]

    def _below(self, edge: str) -> list[str]:
        return [child for child, above in self._parents.items() if above == edge]

    def _mass(self, edge: str) -> float:
        """The weight of an edge and all below it."""
        return self._share(edge) + sum(self._mass(child) for child in self._below(edge))

    def _reach(self, edge: str, without: str | None) -> int:
        """Links of the tree to the farthest edge from this one, by other ways than `without`."""
        above = [self._parents[edge]] if edge in self._parents else []
        near = [name for name in (*self._below(edge), *above) if name != without]
        return max((1 + self._reach(name, edge) for name in near), default=0)

    def _depth(self, edge: str) -> int:
        """Links up to the root."""
        return 1 + self._depth(self._parents[edge]) if edge in self._parents else 0

    def _is_over(self) -> bool:
        return any(self._has_left(self.links[peer]) for peer in self.peers)

    def _has_left(self, link: Link) -> bool:
        """Whether a neighbour cannot do its part; it may have come to another view meanwhile."""
        has_left = link.has_left(self.key, self._generations[link.peer])
        return has_left or self._is_elsewhere(link)

    def _is_elsewhere(self, link: Link) -> bool:
        period, view = link.announced
        return period == self.key[0] and view != self.view.digest

    async def run(self, model: Vector) -> Vector | None:
        """The mean if everybody uses it, None if nobody does."""
        crowded = any(self.links.agreement.is_crowded(p, self.key[0]) for p in self.peers)
        own = None if crowded else await self._sum_up(model)
        result = None if own is None else await self._from_above(own)
        if own is None or result is None or not await self._hand_down(*result):
            self.is_elsewhere = self._can_agree_again()
            if not self.is_elsewhere:
                self._give_up()
            return None
        mean, id_ = result
        if self.parent is None:
            for transaction in self._open.values():
                self.links.commit(transaction)
        elif not await self._obey(mean, own, id_, self.parent):
            return None
        for peer in self.peers:
            self.links[peer].went_well()
        return mean

    async def _until(
        self, condition: Callable[[], bool], stage: int, is_missing: Callable[[str], bool]
    ) -> None:
        """Wait until the end of a stage; a neighbour that is missing then held up the exchange.

        All edges that wait for others do it until a later stage, so none of them is blamed.
        """
        if not await self._stages.until(lambda: self._is_over() or condition(), stage):
            for peer in filter(is_missing, self.peers):
                self.links[peer].held_up()

    def _can_agree_again(self) -> bool:
        """Whether a neighbour has heard of another network, and nobody has refused or promised."""
        links = [self.links[peer] for peer in self.peers]
        has_left = any(k.has_left(self.key, self._generations[k.peer]) for k in links)
        return any(map(self._is_elsewhere, links)) and not has_left and not self._open

    def _give_up(self) -> None:
        """Tells the neighbours, so that nobody waits."""
        refusals = [
            self.links[peer].refused_everybody(self.key, self._reach(peer, self.me))
            for peer in self.peers
        ]
        hops = 1 + max((hops for hops in refusals if hops is not None), default=0)
        for peer in self.peers:
            if peer in self._open:
                self.links.abort(self._open[peer])
            else:
                self.links[peer].count(use=False)
                self.links[peer].refuse(self.key, "not everybody is there", hops)

    def _has(self, peer: str, stage: v1.Stage) -> bool:
        """Whether a neighbour's model is here, about the part of the network that we see."""
        return self.links[peer].has(self.key, stage, self.view.digest)

    def _take(self, peer: str, stage: v1.Stage) -> Offer | None:
        return self.links[peer].take(self.key, stage) if self._has(peer, stage) else None

    async def _sum_up(self, model: Vector) -> Vector | None:
        """The mean over this edge and all below it."""
        children = self.children

        def is_missing(peer: str) -> bool:
            return peer in children and not self._has(peer, UP)

        await self._until(lambda: not any(map(is_missing, children)), self._high, is_missing)
        for child in children:
            offer = self._take(child, UP)
            if offer is not None:
                self._ups[child] = offer.vector
        if len(self._ups) < len(children) or self._is_over():
            return None
        masses = [
            self._share(self.me),
            *(self._mass(child) for child in children),
        ]
        weights = [mass / self._mass(self.me) for mass in masses]
        parts = [model, *self._ups.values()]
        return await offload(model.is_large, lambda: combine(parts, weights, self.node.folder))

    async def _from_above(self, own: Vector) -> tuple[Vector, Id] | None:
        """The mean over everybody: ours at the root, else the parent's."""
        if self.parent is None:
            return own, self.links.agreement.draw(*self.key)
        parent, above, key = self.parent, self.links[self.parent], self.key
        above.offer(own, key, view=self.view.digest, stage=UP)
        stage = self._levels + self._deep
        await self._until(lambda: self._has(parent, DOWN), stage, lambda peer: peer == parent)
        offer = self._take(parent, DOWN)
        if offer is None or self._is_over():
            return None
        is_new = all(self.links.agreement.is_new(peer, offer.id) for peer in self.peers)
        return (offer.vector, offer.id) if is_new else None

    async def _hand_down(self, mean: Vector, id_: Id) -> bool:
        """Whether everybody below holds the result, and has promised to do as decided."""
        agreement, below = self.links.agreement, self._open
        for child in self.children:
            below[child] = agreement.begin(child, id_)
            fields = {"view": self.view.digest, "stage": DOWN, "ballot": id_.ballot}
            self.links[child].offer(mean, self.key, **fields)

        def is_missing(peer: str) -> bool:
            return peer in below and below[peer].vote is None

        stage = 2 * self._levels + self._high
        await self._until(lambda: not any(map(is_missing, below)), stage, is_missing)
        if self._is_over() or any(map(is_missing, below)):
            return False
        share = self._share(self.me)
        for child, transaction in below.items():
            if not transaction.has_vote(self._ups[child].sha256):
                self.links[child].held_up()
                return False
            weight = self._mass(child) / share
            agreement.voted(transaction, Change.towards(mean, self._ups[child], weight))
        return True

    async def _obey(self, mean: Vector, own: Vector, id_: Id, parent: str) -> bool:
        """Promises the parent to do as decided, for all below as well; whether to use the mean."""
        weight = self._mass(self.me) / self._share(self.me)
        change = Change.towards(own, mean, weight)
        transaction = self.links.prepare(parent, id_, change, own.sha256)
        stage = 3 * self._levels + self._deep
        if not await self._stages.until(lambda: transaction.state is not Standing.PREPARED, stage):
            self.links[parent].held_up()
        self.links.give_up_waiting(transaction)
        for below in self._open.values():
            if transaction.state is Standing.IN_DOUBT:
                self.links.give_up_waiting(below)
            elif not transaction.used:
                self.links.abort(below)
        return transaction.used
