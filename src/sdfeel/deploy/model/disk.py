"""A state disk that is full or read-only: an edge pauses, says so, and goes on when there is room.

What it acknowledges must be on the disk, so it cannot go on without; and what it holds is whole, so
there is no reason to end.
"""

from __future__ import annotations

import asyncio

from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.stream import Tell

__all__ = ["Disk"]

TOLD_EVERY = 60.0


class Disk:
    """Asked after every attempt to save. `problem` is empty while all is well."""

    def __init__(self, tell: Tell, pause: float) -> None:
        self.problem = ""
        self._tell, self._pause = tell, pause
        self._since = self._told = 0.0

    async def took(self, saving: asyncio.Future[None]) -> bool:
        """Waits for an attempt; False, after a pause, if the disk did not take it."""
        now = asyncio.get_running_loop().time
        try:
            await asyncio.shield(saving)
        except OSError as problem:
            self._refused(str(problem), now())
            await asyncio.sleep(self._pause)
            return False
        if self.problem:
            self._tell(facts.DiskRelief(seconds=round(now() - self._since, 3)))
            self.problem = ""
        return True

    def _refused(self, reason: str, now: float) -> None:
        if not self.problem:
            self._since, self._told = now, float("-inf")
        if reason != self.problem or now - self._told >= TOLD_EVERY:
            self._told = now
            self._tell(facts.DiskProblem(reason=reason))
        self.problem = reason
