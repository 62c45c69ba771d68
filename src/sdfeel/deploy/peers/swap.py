"""One link in one exchange of eq. (5): two neighbours swap their models, or neither does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sdfeel.deploy.model.vectors import Change, Vector
from sdfeel.deploy.peers.agreement import Standing
from sdfeel.deploy.peers.exchange_timeout import ExchangeTimeout
from sdfeel.deploy.peers.link import Key, Offer
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import View

__all__ = ["Swap"]

SWAP = v1.Stage.SWAP


@dataclass
class Swap:
    """The part of this edge; `weight` is p[j, d], what the neighbour's model counts here."""

    peer: str
    links: Links
    timeout: ExchangeTimeout
    view: View
    key: Key
    weight: float

    async def run(self, model: Vector, coordinates: bool) -> Vector | None:
        """The neighbour's model if both ends use it."""
        self._link = self.links[self.peer]
        self._generation = self._link.generation
        self._start = asyncio.get_running_loop().time()
        crowded = self.links.agreement.is_crowded(self.peer, self.key[0])
        if crowded or self._is_over():
            self._link.count(use=False)
            return None
        return await (self._lead(model) if coordinates else self._follow(model))

    def _is_over(self) -> bool:
        return self._link.has_left(self.key, self._generation)

    def _take(self) -> Offer | None:
        """The neighbour's model; if we waited for it in vain, that is noted."""
        theirs = self._link.take(self.key, SWAP)
        if theirs is None and not self._is_over():
            self._link.was_missed(self._start)
        return theirs

    async def _lead(self, model: Vector) -> Vector | None:
        link, key, agreement = self._link, self.key, self.links.agreement
        transaction = agreement.begin(self.peer, agreement.draw(*key))
        link.offer(model, key, view=self.view.digest, ballot=transaction.id.ballot)
        await self.timeout.until(
            lambda: self._is_over() or (link.has(key, SWAP) and transaction.vote is not None),
            [link],
        )
        theirs = self._take()
        if (
            theirs is None
            or theirs.view != self.view.digest
            or not transaction.has_vote(theirs.vector.sha256)
            or self._is_over()
        ):
            self.links.abort(transaction)
            return None
        agreement.voted(transaction, Change.towards(model, theirs.vector, self.weight))
        self.links.commit(transaction)
        return theirs.vector

    async def _follow(self, model: Vector) -> Vector | None:
        link, key = self._link, self.key
        link.offer(model, key, view=self.view.digest)
        await self.timeout.until(lambda: self._is_over() or link.has(key, SWAP), [link])
        theirs = self._take()
        if theirs is None or theirs.view != self.view.digest or self._is_over():
            link.count(use=False)
            link.refuse(key, "too late, or another view of the network")
            return None
        change = Change.towards(model, theirs.vector, self.weight)
        transaction = self.links.prepare(self.peer, theirs.id, change, model.sha256)
        await self.timeout.until(lambda: transaction.state is not Standing.PREPARED, [link])
        self.links.give_up_waiting(transaction)
        return theirs.vector if transaction.used else None
