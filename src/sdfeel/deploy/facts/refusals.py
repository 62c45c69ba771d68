"""What is refused is counted always, and logged once; a flood of the same is a line a second."""

from __future__ import annotations

from typing import Any

from sdfeel.deploy.facts.logs import Log
from sdfeel.deploy.facts.metrics import Metrics
from sdfeel.deploy.facts.rate_limit import RateLimitedLog

__all__ = ["Refusals"]


class Refusals:
    """Of one edge, in its log and in its metric `sdfeel_refused_total`."""

    def __init__(self, log: Log, metrics: Metrics) -> None:
        self._tell, self._metrics = RateLimitedLog(log), metrics

    def __call__(self, event: str, kind: str, reason: str, who: str = "", **fields: Any) -> None:
        self._metrics.refused.labels(kind).inc()
        self._tell(event, kind, who, kind=kind, reason=reason, **fields)
