"""How often a log tells what repeats, or what others may cause as often as they like."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sdfeel.deploy.facts.facts import Fact, Limit

__all__ = ["Limits"]

KNOWN = 4096  # keys of limited facts
KINDS = 256  # of repeated facts


@dataclass
class _Flood:
    since: float
    told: int = 0
    untold: int = 0


class Limits:
    """Of one log: see `Fact.repeats` and `Fact.limit`."""

    def __init__(self) -> None:
        self._floods: dict[tuple[object, ...], _Flood] = {}
        self._times: dict[str, int] = {}

    def admit(self, fact: Fact) -> dict[str, int] | None:
        """Return what a line about the fact has besides, or None if there is to be no line.

        count  so many since the last line of its like, with this one
        times  so many since the start
        """
        if fact.limit is not None:
            return self._limited(fact, fact.limit)
        if fact.repeats:
            return self._repeated(fact)
        return {}

    def _limited(self, fact: Fact, limit: Limit) -> dict[str, int] | None:
        now = asyncio.get_running_loop().time()
        if len(self._floods) >= KNOWN:
            self._floods.clear()
        key = (type(fact), *(getattr(fact, name) for name in limit.by))
        flood = self._floods.setdefault(key, _Flood(now))
        if now - flood.since >= limit.seconds:
            flood.since, flood.told = now, 0
        if flood.told >= limit.most:
            flood.untold += 1
            return None
        about = {"count": flood.untold + 1} if flood.untold else {}
        flood.told, flood.untold = flood.told + 1, 0
        return about

    def _repeated(self, fact: Fact) -> dict[str, int] | None:
        if len(self._times) > KINDS:
            self._times.clear()
        key = repr(fact)
        times = self._times[key] = self._times.get(key, 0) + 1
        if times & (times - 1):
            return None
        return {"times": times} if times > 1 else {}
