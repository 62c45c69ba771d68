"""How long an exchange waits for neighbours.

A neighbour that makes progress is worth waiting for, but not for ever: `deadlines.exchange` at
most, and less where the others come soon. One that was waited for in vain is waited for half as
long the next time, and again as before once a model of it has come in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.waiting import Signal, UsualTimes

__all__ = ["ExchangeTimeout"]

HALVINGS = 7
LOST_SECONDS = 1.0  # in which a stream that ended may be back, before the exchange goes on


@dataclass(frozen=True)
class ExchangeTimeout:
    """Of one edge with its neighbours.

    times     how long their models usually are waited for
    rounds    how many periods one that is not late may have before it (tau2)
    """

    signal: Signal
    times: UsualTimes
    rounds: int = 1

    async def until(
        self, condition: Callable[[], bool], links: Iterable[Link], part: float = 1.0
    ) -> bool:
        """Waits for `condition()` as long as these neighbours deserve it, or a part of that."""
        start = asyncio.get_running_loop().time()
        watched = list(links)
        missed = max((link.missed for link in watched), default=0)
        seconds: float = part * self.times.limit * 0.5 ** min(missed, HALVINGS)

        def deadline() -> float:
            last = max([start, *(link.moved_at for link in watched)])
            usual = min(last, start + (self.rounds - 1) * seconds) + seconds
            lost = [link.lost_at + LOST_SECONDS for link in watched if not link.up]
            return min([usual, *lost])

        return await self.signal.until(condition, deadline)
