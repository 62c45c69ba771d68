"""How many aggregations there have been, as far as an edge has heard.

The simulator counts aggregations of anybody in one place; a deployment has no such place. So every
edge counts its own, and what it has heard of the others' travels with its swaps and its word of
progress. In its turn, after the swaps if it has any, an edge notes the sum of all that it has heard
of. Then

    delta_j = the sum of what the two ends of a swap have heard of, minus what j noted in its last

which j itself works out when it answers. It is the simulator's delta_j where no aggregation is more
than two links away; one that is may be counted late. psi is never above psi(0). The mean steps
thetabar_d of an edge's clients travel with its count, for the compensation: the slowest rate is
that of the slowest edge that was heard of.

Nobody is believed beyond what can be: an edge makes no more turns than its plan and its clients no
more steps than `limits.steps` allows, nor fewer than one, in a time that the file says. An edge's
own word about itself replaces what others say of it, and about us only we know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology

__all__ = ["Counts"]


@dataclass
class Counts:
    """Of one edge.

    turns   aggregations of each edge
    steps   thetabar of each, at its last one
    noted   the sum of all turns, in our last one
    """

    me: str
    topology: Topology
    turns: dict[str, int] = field(default_factory=dict)
    steps: dict[str, float] = field(default_factory=dict)
    noted: int = 0

    def aggregated(self, turn: int, steps: float | None) -> None:
        """We have made this turn; with nobody there, the steps are those of the last one."""
        self.turns[self.me] = turn
        if steps is not None:
            self.steps[self.me] = steps
        self.note()

    def note(self) -> None:
        """At the end of a turn: all that we have heard of until now came before it."""
        self.noted = sum(self.turns.values())

    @property
    def staleness(self) -> int:
        """Delta of our own model."""
        return max(0, sum(self.turns.values()) - self.noted)

    @property
    def most(self) -> int:
        """That a staleness can be: all turns of all edges."""
        return sum(self.topology.plan(edge) for edge in self.topology.edges)

    def rate(self, edge: str) -> float:
        """Steps a second."""
        return self.steps[edge] / self.topology.seconds(edge)

    @property
    def slowest(self) -> float:
        return min(self.rate(edge) for edge in self.steps)

    def tell(self) -> list[v1.Count]:
        return [
            v1.Count(edge=edge, turns=turns, steps=self.steps.get(edge, 0.0))
            for edge, turns in self.turns.items()
        ]

    def hear(self, peer: str, counts: Iterable[v1.Count]) -> bool:
        """What a neighbour has heard of; False if some of it cannot be, which is left out."""
        good = True
        for count in list(counts)[: len(self.topology.edges) + 1]:
            if not self._can_be(count):
                good = False
            elif count.edge != self.me and self._is_news(peer, count):
                self.turns[count.edge] = count.turns
                if count.steps:
                    self.steps[count.edge] = count.steps
        return good

    def _is_news(self, peer: str, count: v1.Count) -> bool:
        return count.edge == peer or count.turns > self.turns.get(count.edge, 0)

    def _can_be(self, count: v1.Count) -> bool:
        if count.edge not in self.topology.edges or count.turns > self.topology.plan(count.edge):
            return False
        most = self.topology.deployment.most_steps
        return count.steps == 0 or (math.isfinite(count.steps) and 1 <= count.steps <= most)

    def notes(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"turns": dict(self.turns), "steps": dict(self.steps), "noted": self.noted}

    def restore(self, notes: dict[str, Any]) -> None:
        """As a checkpoint has it; edges that are no longer there are forgotten."""
        known = self.topology.edges
        turns, steps = notes.get("turns", {}), notes.get("steps", {})
        self.turns = {edge: int(own) for edge, own in turns.items() if edge in known}
        self.steps = {edge: float(own) for edge, own in steps.items() if edge in known}
        self.noted = int(notes.get("noted", 0))
