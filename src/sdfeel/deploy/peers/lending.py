"""Models lent over a link: to an edge that has none, at its request."""

from __future__ import annotations

import asyncio

from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.outbox import Outbox

__all__ = ["Lending"]

Found = tuple[int, Vector]  # a finished period and its model


class Lending:
    """Of one link, both ways."""

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
