"""How long an exchange waits for neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sdfeel.deploy.link.link import Link
from sdfeel.deploy.waiting import Bell

__all__ = ["Patience"]


@dataclass(frozen=True)
class Patience:
    """A neighbour that makes progress is worth waiting for, but not for ever.

    seconds   without a finished period of theirs (`deadlines.exchange`)
    rounds    how many periods one that is not late may have before it (tau2)
    """

    bell: Bell
    seconds: float
    rounds: int = 1

    async def until(self, condition: Callable[[], bool], links: Iterable[Link]) -> bool:
        """Waits for `condition()` as long as these neighbours deserve it."""
        start = asyncio.get_running_loop().time()
        watched = list(links)

        def deadline() -> float:
            last = max([start, *(link.moved_at for link in watched)])
            return min(last, start + (self.rounds - 1) * self.seconds) + self.seconds

        return await self.bell.until(condition, deadline)
