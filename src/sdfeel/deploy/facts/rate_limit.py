"""What somebody else can cause as often as it likes is told a few times, and then counted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from sdfeel.deploy.facts.logs import Log

__all__ = ["RateLimitedLog"]

KNOWN = 4096  # of who and what, that are told apart


@dataclass
class _Flood:
    since: float
    told: int = 0
    untold: int = 0


@dataclass
class RateLimitedLog:
    """Lines of a log: of one key at most `most` in `seconds`.

    `count` in a line: so many since the last one about it, with this one.
    """

    log: Log
    most: int = 1
    seconds: float = 1.0
    _floods: dict[tuple[str, ...], _Flood] = field(default_factory=dict)

    def __call__(self, event: str, *key: str, **fields: Any) -> None:
        now = asyncio.get_running_loop().time()
        if len(self._floods) >= KNOWN:
            self._floods.clear()
        flood = self._floods.setdefault((event, *key), _Flood(now))
        if now - flood.since >= self.seconds:
            flood.since, flood.told = now, 0
        if flood.told >= self.most:
            flood.untold += 1
            return
        if flood.untold:
            fields["count"] = flood.untold + 1
        flood.told, flood.untold = flood.told + 1, 0
        self.log(event, **fields)
