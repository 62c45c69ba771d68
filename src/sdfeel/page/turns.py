"""Who computes, sends and waits where there are no rounds: the agenda of a run played again.

A lane is a server, or in a star without rounds a client. The agenda is the one that the run itself
had, so its seconds are those of metrics.csv.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.pace import TurnPace
from sdfeel.algorithm.turns import Agenda, Turn
from sdfeel.page.lanes import MOST, PARTS, PATIENCE, Box, shares

__all__ = ["TurnTimeline"]


@dataclass
class TurnTimeline:
    """The agenda of an algorithm, and the last turns that were taken."""

    algorithm: Algorithm
    agenda: Agenda = field(init=False)
    boxes: deque[Box] = field(default_factory=lambda: deque(maxlen=MOST))

    def __post_init__(self) -> None:
        pace = self.algorithm.pace
        assert isinstance(pace, TurnPace)  # noqa: S101 - `timeline_of` asked
        self.agenda = pace.agenda(self.algorithm)
        uplink = self.algorithm.uplink
        self._step = uplink.latencies.t_cmp
        self._sending = uplink.seconds(np.ones(self.algorithm.network.clients, dtype=bool))

    @property
    def is_star(self) -> bool:
        """Whether a lane is a client."""
        return len(self.agenda.groups) != self.algorithm.network.servers

    def is_past(self, row: Mapping[str, float]) -> bool:
        return self.agenda.seconds > row["seconds"]

    def advance(self, row: Mapping[str, float]) -> bool:
        """Up to a row of the metrics; False if it takes more than a look."""
        end = time.monotonic() + PATIENCE
        while self.agenda.seconds < row["seconds"]:
            turns, after = self.agenda.window(2**60, 2**60, row["seconds"])
            waited = after.waited - self.agenda.waited
            self.boxes.extend(self._box(turn, after, float(waited[turn.server])) for turn in turns)
            self.agenda = after
            if time.monotonic() > end:
                return False
        return True

    def _box(self, turn: Turn, after: Agenda, waited: float) -> Box:
        """One turn, from the model that its group began with to the next."""
        group, part = turn.group, turn.part
        begin, whole = float(self.agenda.begun[group]), turn.at - float(self.agenda.begun[group])
        computing = (part.last - part.first + 1) * self._step[part.clients]
        done = min(float((computing + self._sending[part.clients]).max(initial=0.0)), whole)
        compute = min(float(computing.max(initial=0.0)), done)
        down = min(after.seconds_down(group, part), float(after.begun[group]) - turn.at)
        waits = whole - done + waited
        parts = {
            "compute": compute,
            "upload": done - compute,
            "exchange": max(float(after.begun[group]) - turn.at - waited - down, 0.0),
            "waiting": waits if waits > 1e-9 * (1 + turn.at) else 0.0,
            "download": down,
        }
        first, last = (int(part.first.min()), int(part.last.max())) if len(part.clients) else (0, 0)
        return Box(group, first, last, begin, parts)

    def shown(self, rounds: int) -> dict[str, Any]:
        """The last turns: of the slowest group so many."""
        since = self.agenda.seconds - max(rounds, 1) * float(self.agenda.length.max())
        boxes = [box for box in self.boxes if box.end > since]
        kind = "client" if self.is_star else "server"
        return {
            "iteration": self.agenda.k,
            "seconds": self.agenda.seconds,
            "names": [f"{kind} {number}" for number in range(len(self.agenda.groups))],
            "boxes": [box.as_dict() for box in boxes],
            "mean": shares(boxes, len(boxes)) if boxes else dict.fromkeys(PARTS, 0.0),
            "mean_of": f"mean of the last {len(boxes)} turns",
            "clock": None,
        }
