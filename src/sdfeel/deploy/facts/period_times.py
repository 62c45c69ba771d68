"""Where the seconds of a round go, as one edge measures them.

    compute   local updates of the client whose model came last, by its own word
    upload    the rest until that model was there: the edge's model down, the client's up
    waiting   for clients that did not come, until the deadline; then for neighbours, until the
              slowest of them had begun to send its model
    exchange  the rest of the exchanges
    save      the cluster's mean, the checkpoint, and telling clients

A client's word counts from 0 to what the edge saw pass, so a lie moves seconds between compute and
upload and nowhere else. A model of one message (32,768 values or less) has come when it begins to
come: its way from a neighbour counts as waiting.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["PARTS", "PeriodTimes"]

PARTS = ("compute", "upload", "waiting", "exchange", "save")


@dataclass
class PeriodTimes:
    """round  seconds of the last whole round, tau2 periods, by part; empty before the first."""

    now: Callable[[], float] = time.perf_counter
    round: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sum = dict.fromkeys(PARTS, 0.0)
        self.begin()

    def begin(self) -> None:
        """A period begins; one that did not happen is forgotten."""
        self._began = self.now()
        self._last = self._computed = 0.0
        self._waited = self._exchanged = 0.0

    def came(self, seconds: float) -> None:
        """A client's model is there; it says that its local updates took so long."""
        self._last = self.now() - self._began
        self._computed = min(max(seconds, 0.0), self._last) if math.isfinite(seconds) else 0.0

    def exchanged(self, seconds: float, waited: float) -> None:
        """The exchanges of the period took so long, and of it neighbours were waited for."""
        waited = min(max(waited, 0.0), seconds)
        self._waited, self._exchanged = waited, seconds - waited

    def end(self, collected: float, ended: float, closes: bool) -> None:
        """The period is over; `closes`: and the round with it.

        collected, ended  seconds since it began
        """
        parts = {
            "compute": self._computed,
            "upload": self._last - self._computed,
            "waiting": max(collected - self._last, 0.0) + self._waited,
            "exchange": self._exchanged,
        }
        parts["save"] = max(ended - sum(parts.values()), 0.0)
        for name in PARTS:
            self._sum[name] += parts[name]
        if closes:
            self.round, self._sum = self._sum, dict.fromkeys(PARTS, 0.0)
