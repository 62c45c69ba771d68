"""The models that come in over a link: checked on their way, and kept until an exchange asks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.agreement import Id
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.outbox import Outbox
from sdfeel.deploy.wire.packing import packing_of

__all__ = ["Inbox", "Key", "Offer"]

Key = tuple[int, int]  # period and exchange
OFFERS = 3
Found = tuple[int, Vector]  # a finished period and its model
CODED = (v1.Stage.SWAP, v1.Stage.OFFER, v1.Stage.ANSWER)


@dataclass(frozen=True)
class Offer:
    """A neighbour's model in an exchange."""

    vector: Vector
    view: str
    id: Id
    bound: float


class Inbox:
    """Of one link.

    came        is told the period of a model that is whole, for which somebody may have waited
    refuse      is told what is wrong with one, and the exchange that it was for; None: a loan
    swap        is given the models of swaps without rounds
    find        finds the model that a message is a change of
    reached     the last exchange for which the neighbour has announced a model
    """

    def __init__(
        self,
        node: Node,
        came: Callable[[int], None],
        refuse: Callable[[Refused, Key | None], None],
        swap: Callable[[v1.ModelHeader, Vector], None],
        find: Callable[[bytes], Vector | None],
    ) -> None:
        self._node, self._find = node, find
        self._packing = packing_of(node.deployment.codecs.between)
        self._came, self._refused, self._swap = came, refuse, swap
        self._incoming: frames.Incoming | None = None
        self._offers: dict[tuple[Key, int], Offer] = {}
        self.reached: Key = (0, 0)
        self.lending = Lending()

    def clear(self) -> None:
        """A new stream: what came over another one is of no use."""
        self._incoming = None
        self._offers.clear()
        self.reached = (0, 0)

    def end(self) -> None:
        """The stream has ended."""
        if self._incoming is not None:
            self._incoming.abandon()
            self._incoming = None
        self.lending.came(None)

    async def open(self, announced: v1.ModelHeader) -> None:
        is_lent = announced.stage == v1.Stage.LENT
        if not is_lent:
            self.reached = max(self.reached, (announced.period, announced.exchange))
        if self._incoming is not None:
            self._refuse(Refused("truncated", "a new model before the last one was whole"))
        try:
            if is_lent and not self.lending.is_wanted:
                raise Refused("unasked", "a model that was not asked for")
            self._incoming = self._begin(announced)
        except Refused as refusal:
            self._tell(announced, refusal)
            return
        if announced.data:
            await self.feed(v1.Chunk(data=announced.data))

    def _begin(self, announced: v1.ModelHeader) -> frames.Incoming:
        """A whole model; or the change of one that both ends hold, if edges use a codec."""
        node, start, packing = self._node, None, None
        if not 0 <= announced.bound < math.inf:
            raise Refused("bound", f"a bound of {announced.bound}")
        if announced.base and announced.stage in CODED:
            start, packing = self._find(announced.base), self._packing
            if start is None:
                raise Refused("base", "a change of a model that this end does not hold")
        most = node.deployment.limits.magnitude
        return frames.Incoming(announced, node.size, most, node.folder, start, packing)

    async def feed(self, chunk: v1.Chunk) -> None:
        incoming = self._incoming
        if incoming is None:  # the rest of a model that was refused
            return
        self._node.metrics.bytes.labels("edges", "in").inc(len(chunk.data))
        try:
            vector = await incoming.take(chunk)
        except Refused as refusal:
            if self._incoming is incoming:
                self._refuse(refusal)
            return
        if vector is not None and self._incoming is incoming:  # else a newer stream took its place
            announced, self._incoming = incoming.announced, None
            if announced.stage != v1.Stage.OFFER:
                self._came(announced.period)
            self._put(announced, vector)

    def _put(self, announced: v1.ModelHeader, vector: Vector) -> None:
        if announced.stage == v1.Stage.LENT:
            self.lending.came((announced.period, vector))
            return
        if announced.stage in (v1.Stage.OFFER, v1.Stage.ANSWER):
            self._swap(announced, vector)
            return
        id_ = Id(announced.period, announced.exchange, announced.ballot)
        slot = (id_[:2], announced.stage)
        self._offers[slot] = Offer(vector, announced.view, id_, announced.bound)
        while len(self._offers) > OFFERS:
            del self._offers[min(self._offers)]

    def _refuse(self, refusal: Refused) -> None:
        assert self._incoming is not None  # noqa: S101 - by its callers
        announced = self._incoming.announced
        self._incoming.abandon()
        self._incoming = None
        self._tell(announced, refusal)

    def _tell(self, announced: v1.ModelHeader, refusal: Refused) -> None:
        if announced.stage == v1.Stage.LENT:
            self._refused(refusal, None)
            self.lending.came(None)
        else:
            self._refused(refusal, (announced.period, announced.exchange))

    # What an exchange asks.

    def has(self, key: Key, stage: v1.Stage, view: str | None = None) -> bool:
        """Whether a model has come, if that matters for this part of the network."""
        offer = self._offers.get((key, stage))
        return offer is not None and view in (None, offer.view)

    def take(self, key: Key, stage: v1.Stage) -> Offer | None:
        """The neighbour's model in this exchange, if it has come; once."""
        return self._offers.pop((key, stage), None)

    def forget(self, period: int) -> None:
        """Drops what belongs to finished periods."""
        self._offers = {slot: o for slot, o in self._offers.items() if slot[0][0] > period}


class Lending:
    """Of one link, both ways: models for an edge that has none, at its request."""

    def __init__(self) -> None:
        self._given: v1.LinkMessage | None = None
        self._awaited: asyncio.Future[Found | None] | None = None

    def give(self, outbox: Outbox, vector: Vector, period: int) -> bool:
        """Whether it is sent: not again while the last one is on its way."""
        if outbox.holds(self._given):
            return False
        self._given = v1.LinkMessage(model=frames.header(vector, period, stage=v1.Stage.LENT))
        outbox.offer(self._given, vector)
        return True

    @property
    def is_wanted(self) -> bool:
        return self._awaited is not None

    async def take(self, seconds: float) -> Found | None:
        """What comes in this time; None if nothing does."""
        self._awaited = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                return await self._awaited
        except TimeoutError:
            return None
        finally:
            self._awaited = None

    def came(self, found: Found | None) -> None:
        """A model, or that none will come."""
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(found)
