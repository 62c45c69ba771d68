"""One link in one exchange of eq. (5): two neighbours swap their models, or neither does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sdfeel.deploy.members import View
from sdfeel.deploy.model.vectors import Change, Vector
from sdfeel.deploy.peers.agreement import Standing, Transaction
from sdfeel.deploy.peers.exchange_timeout import ExchangeTimeout, Stages
from sdfeel.deploy.peers.hearing import Hearing
from sdfeel.deploy.peers.link import Key, Offer
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.peers.messages import Message, Messages
from sdfeel.deploy.protocol import v1

__all__ = ["Swap"]

SWAP = v1.Stage.SWAP
STAGES = 2  # of one exchange: models and votes, then the decision


@dataclass
class Swap:
    """The part of this edge.

    weight   p[j, d], what the neighbour's model counts here
    stages   of an exchange that needs everybody
    """

    peer: str
    links: Links
    timeout: ExchangeTimeout
    hearing: Hearing
    view: View
    key: Key
    weight: float
    stages: Stages | None = None

    async def run(self, messages: Messages, coordinates: bool) -> Change | None:
        """What the link gives, if both ends use it."""
        self._link = self.links[self.peer]
        self._generation = self._link.generation
        self._start = asyncio.get_running_loop().time()
        crowded = self.links.agreement.is_crowded(self.peer, self.key[0])
        if crowded or self._is_over():
            self._link.count(use=False)
            return None
        message = await messages.to(self._link.bases)
        if self._is_over():
            self._link.count(use=False)
            return None
        transaction = await (self._lead if coordinates else self._follow)(messages, message)
        return transaction.change if transaction is not None and transaction.used else None

    def _is_over(self) -> bool:
        return self._link.has_left(self.key, self._generation)

    def _take(self) -> Offer | None:
        """The neighbour's model; if we waited for it in vain, that is noted."""
        theirs = self._link.take(self.key, SWAP)
        if theirs is None and not self._is_over():
            self._missed()
        return theirs

    def _missed(self) -> None:
        if self.stages is None:
            self._link.was_missed(self._start)
        else:
            self._link.held_up()

    async def _until(self, condition: Callable[[], bool], stage: int) -> None:
        """Wait for the neighbour's models and votes (stage 1), or its decision (2)."""
        if self.stages is None:
            await self.timeout.until(condition, [self._link])
        else:
            await self.stages.until(condition, self.key[1] * STAGES + stage)

    async def _lead(self, messages: Messages, message: Message) -> Transaction[Change] | None:
        link, key, agreement = self._link, self.key, self.links.agreement
        transaction = agreement.begin(self.peer, agreement.draw(*key))
        fields = {"view": self.view.digest, "bound": self.hearing.bound}
        link.offer(message.load, key, ballot=transaction.id.ballot, **fields)
        await self._until(
            lambda: self._is_over() or (link.has(key, SWAP) and transaction.vote is not None), 1
        )
        theirs = self._take()
        is_good = theirs is not None and theirs.view == self.view.digest
        if theirs is None or not is_good or not transaction.has_vote(theirs.vector.sha256):
            if theirs is not None and not self._is_over() and self.stages is not None:
                link.held_up(elsewhere=not is_good)  # or it voted too late, or for another model
            self.links.abort(transaction)
            return None
        change = await self._change(message.shown, theirs)
        if self._is_over():
            self.links.abort(transaction)
            return None
        base = messages.base(message.shown, theirs.vector)
        agreement.voted(transaction, change, base)
        self.links.commit(transaction)
        return transaction

    async def _change(self, shown: Vector, theirs: Offer) -> Change:
        vector, bound = theirs.vector, theirs.bound
        return await self.hearing.change(self.peer, shown, vector, self.weight, bound)

    async def _follow(self, messages: Messages, message: Message) -> Transaction[Change] | None:
        link, key = self._link, self.key
        link.offer(message.load, key, view=self.view.digest, bound=self.hearing.bound)
        await self._until(lambda: self._is_over() or link.has(key, SWAP), 1)
        theirs = self._take()
        if theirs is None or theirs.view != self.view.digest or self._is_over():
            link.count(use=False)
            link.refuse(key, "too late, or another view of the network")
            return None
        shown = message.shown
        change = await self._change(shown, theirs)
        base = messages.base(shown, theirs.vector)
        transaction = self.links.prepare(self.peer, theirs.id, change, shown.sha256, base)
        await self._until(lambda: transaction.state is not Standing.PREPARED, 2)
        if transaction.state is Standing.PREPARED and self.stages is not None:
            link.held_up()
        self.links.give_up_waiting(transaction)
        return transaction
