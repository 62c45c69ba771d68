"""How long an exchange waits for neighbours.

A neighbour that makes progress is worth waiting for, but not for ever: `deadlines.exchange` at
most, and less where the others come soon. One that was waited for in vain is waited for half as
long the next time, and again as before once a model of it has come in time.

An exchange of everybody (all-reduce, finite-time) has stages, and an edge that waits for another
may wait for a third one by that. So each stage may last longer than the one before, by as much as
neighbours may begin apart: the edge that waits for a silent one gives up first and says so, and no
honest one is taken for silent. That needs the same seconds everywhere, so nothing is learned here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.waiting import Signal, UsualTimes

__all__ = ["ExchangeTimeout", "Stages"]

HALVINGS = 7
EVERYBODY = 4  # a deadline is so many times what the first stage of an exchange of everybody takes
APART = 0.5  # of that, neighbours may begin after each other, and the next stage lasts longer
LOST_SECONDS = 1.0  # in which a stream that ended may be back, before the exchange goes on


@dataclass(frozen=True)
class Stages:
    """The deadlines of one exchange of everybody: of stage n, `seconds` (1 + n APART)."""

    signal: Signal
    start: float
    seconds: float

    async def until(self, condition: Callable[[], bool], stage: int) -> bool:
        """Whether the condition holds before the end of this stage."""
        end = self.start + self.seconds * (1 + stage * APART)
        return await self.signal.until(condition, lambda: end)


@dataclass(frozen=True)
class ExchangeTimeout:
    """Of one edge with its neighbours.

    times     how long their models usually are waited for
    rounds    how many periods one that is not late may have before it (tau2)
    """

    signal: Signal
    times: UsualTimes
    rounds: int = 1

    async def until(self, condition: Callable[[], bool], links: Iterable[Link]) -> bool:
        """Waits for `condition()` as long as these neighbours deserve it."""
        watched = list(links)
        missed = max((link.missed for link in watched), default=0)
        return await self._until(
            condition, watched, self.times.limit * 0.5 ** min(missed, HALVINGS)
        )

    async def until_agreed(self, condition: Callable[[], bool], links: Iterable[Link]) -> bool:
        """The same before an exchange of everybody, for as long as neighbours may begin apart."""
        return await self._until(condition, list(links), APART * self._everybody)

    @property
    def _everybody(self) -> float:
        return self.times.deadline / EVERYBODY

    def stages(self) -> Stages:
        """An exchange of everybody that begins now."""
        return Stages(self.signal, asyncio.get_running_loop().time(), self._everybody)

    async def _until(
        self, condition: Callable[[], bool], watched: list[Link], seconds: float
    ) -> bool:
        start = asyncio.get_running_loop().time()

        def deadline() -> float:
            last = max([start, *(link.moved_at for link in watched)])
            usual = min(last, start + (self.rounds - 1) * seconds) + seconds
            lost = [link.lost_at + LOST_SECONDS for link in watched if not link.up]
            return min([usual, *lost])

        return await self.signal.until(condition, deadline)
