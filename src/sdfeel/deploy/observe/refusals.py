"""What is refused is counted always, and logged once; a flood of the same is a line a second."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from sdfeel.deploy.observe.logs import Log
from sdfeel.deploy.observe.metrics import Metrics

__all__ = ["Refusals"]

SECONDS = 1.0
KNOWN = 4096  # of who and why, that are told apart


@dataclass
class _Flood:
    told_at: float
    untold: int = 0


@dataclass
class Refusals:
    """Of one edge, in its log and in its metric `sdfeel_refused_total`."""

    log: Log
    metrics: Metrics
    _floods: dict[tuple[str, ...], _Flood] = field(default_factory=dict)

    def __call__(self, event: str, kind: str, reason: str, who: str = "", **fields: Any) -> None:
        """`count` in the log: so many of this kind since the last line about it, with this one."""
        self.metrics.refused.labels(kind).inc()
        now = asyncio.get_running_loop().time()
        flood = self._floods.get((event, kind, who))
        if flood is not None and now - flood.told_at < SECONDS:
            flood.untold += 1
            return
        if flood is not None and flood.untold:
            fields["count"] = flood.untold + 1
        if len(self._floods) >= KNOWN:
            self._floods.clear()
        self._floods[event, kind, who] = _Flood(now)
        self.log(event, kind=kind, reason=reason, **fields)
