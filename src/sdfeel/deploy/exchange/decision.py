"""The follower's side of a decision, and how long anybody waits for a neighbour."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sdfeel.deploy.link.ledger import Doubt, Key
from sdfeel.deploy.link.link import Link
from sdfeel.deploy.observe.logs import Log
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.waiting import Bell

__all__ = ["Decider"]


@dataclass
class Decider:
    """What exchanges between neighbours and an all-reduce have in common."""

    bell: Bell
    log: Log
    patience: float

    def deadline(self, *links: Link) -> Callable[[], float]:
        """A neighbour that still makes progress is worth waiting for."""
        start = asyncio.get_running_loop().time()
        return lambda: max([start, *(link.heard_at for link in links)]) + self.patience

    async def until(self, condition: Callable[[], bool], *links: Link) -> bool:
        """Waits for `condition()` as long as these neighbours deserve it."""
        return await self.bell.until(condition, self.deadline(*links))

    async def obey(self, link: Link, key: Key, doubt: Doubt) -> bool:
        """Says READY and does as told; without a word by the deadline goes on, and remembers."""
        link.memory.doubts[key] = doubt
        link.say(key, v1.Word.READY)
        if not await self.until(lambda: key in link.words, link):
            link.record(key, use=False)
            self.log("undecided", peer=link.peer, key=key)
            return False
        del link.memory.doubts[key]
        use = link.words.pop(key) == v1.Word.USE
        link.record(key, use)
        return use
