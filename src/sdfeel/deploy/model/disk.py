"""A state disk that is full or read-only: an edge pauses, says so, and goes on when there is room.

What it acknowledges must be on the disk, so it cannot go on without; and what it holds is whole, so
there is no reason to end.
"""

from __future__ import annotations

import asyncio

from sdfeel.deploy.facts.logs import Log
from sdfeel.deploy.facts.metrics import Metrics

__all__ = ["Disk"]

TOLD_EVERY = 60.0


class Disk:
    """Asked after every attempt to save. `problem` is empty while all is well."""

    def __init__(self, log: Log, metrics: Metrics, pause: float) -> None:
        self.problem = ""
        self._log, self._metrics, self._pause = log, metrics, pause
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
            self._log("disk-relief", seconds=round(now() - self._since, 3))
            self.problem = ""
            self._metrics.disk.set(0)
        return True

    def _refused(self, reason: str, now: float) -> None:
        self._metrics.disk.set(1)
        if not self.problem:
            self._since, self._told = now, float("-inf")
        if reason != self.problem or now - self._told >= TOLD_EVERY:
            self._told = now
            self._log("disk-problem", reason=reason)
        self.problem = reason
