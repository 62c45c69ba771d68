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

Steps are believed only from their edge: from its own stream, or from its signed link state if it is
further away. A neighbour's word about the turns of a third edge goes no further than `AHEAD` turns
beyond what that edge has signed. The steps of an edge that has made no turn for `FRESH` times T_d
no longer set the slowest rate: it has stopped, or it only said so.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from sdfeel.deploy.members import Members
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology

__all__ = ["Counts"]

FRESH = 4.0  # times T_d for which the steps of an edge count without another turn of it
AHEAD = 8  # turns that an edge may have made and not signed: its disk may be behind


def _now() -> float:
    """The time of the event loop that runs, or else that of the machine."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


@dataclass
class Counts:
    """Of one edge.

    turns   aggregations of each edge
    steps   thetabar of each, at its last one
    noted   the sum of all turns, in our last one
    now     the time in seconds
    """

    me: str
    topology: Topology
    turns: dict[str, int] = field(default_factory=dict)
    steps: dict[str, float] = field(default_factory=dict)
    noted: int = 0
    now: Callable[[], float] = field(default=_now, compare=False)

    def __post_init__(self) -> None:
        self._renewed: dict[str, float] = {}  # when the steps of an edge last counted anew
        self._turns_of_steps: dict[str, int] = {}  # its turns at that moment, by its own stream
        self._signed: dict[str, int] = {}  # turns on its disk, by its signed state

    @property
    def _members(self) -> Members:
        return self.topology.at(self.turns.get(self.me, 0))

    def aggregated(self, turn: int, steps: float | None) -> None:
        """We have made this turn; with nobody there, the steps are those of the last one."""
        self.turns[self.me] = turn
        if steps is not None:
            self.steps[self.me] = steps
        self.note()

    def note(self) -> None:
        """At the end of a turn: all that we have heard of until now came before it."""
        self.noted = self.aggregations

    @property
    def aggregations(self) -> int:
        """Of anybody, as far as this edge has heard."""
        return sum(self.turns.values())

    @property
    def staleness(self) -> int:
        """Delta of our own model."""
        return max(0, self.aggregations - self.noted)

    @property
    def most(self) -> int:
        """That a staleness can be: all turns of all edges."""
        return sum(self.topology.plan(edge) for edge in self._members.edges)

    def rate(self, edge: str) -> float:
        """Steps a second."""
        return self.steps[edge] / self.topology.seconds(edge)

    @property
    def slowest(self) -> float:
        """The least rate of an edge that makes turns, this one included."""
        return min(self.rate(edge) for edge in self.steps if self._is_fresh(edge))

    def _is_fresh(self, edge: str) -> bool:
        if edge == self.me:
            return True
        # The steps of a checkpoint count from when they are first asked for.
        age = self.now() - self._renewed.setdefault(edge, self.now())
        return age <= FRESH * self.topology.seconds(edge)

    def tell(self) -> list[v1.Count]:
        return [
            v1.Count(edge=edge, turns=turns, steps=self.steps.get(edge, 0.0))
            for edge, turns in self.turns.items()
        ]

    def hear(self, peer: str, counts: Iterable[v1.Count]) -> bool:
        """What a neighbour has heard of; False if some of it cannot be, which is left out."""
        good = True
        for count in list(counts)[: len(self._members.edges) + 1]:
            if not self._can_be(count):
                good = False
            elif count.edge == peer:
                self.turns[peer] = count.turns
                if count.steps and self._turns_of_steps.get(peer) != count.turns:
                    self._turns_of_steps[peer] = count.turns
                    self._renew(peer, count.steps)
            elif count.edge != self.me:
                turns = min(count.turns, self._signed.get(count.edge, 0) + AHEAD)
                self.turns[count.edge] = max(turns, self.turns.get(count.edge, 0))
        return good

    def _renew(self, edge: str, steps: float) -> None:
        self.steps[edge], self._renewed[edge] = steps, self.now()

    def hear_signed(self, edge: str, turns: int, steps: float) -> None:
        """Take what an edge has signed; the own stream of a neighbour is sooner here."""
        if edge == self.me:
            return
        is_turn = turns != self._signed.get(edge)
        self._signed[edge] = turns
        is_near = edge in self._members.neighbours(self.me)
        if is_near and edge in self._renewed and self._is_fresh(edge):
            return
        self.turns[edge] = min(max(turns, self.turns.get(edge, 0)), turns + AHEAD)
        if steps and is_turn:
            self._renew(edge, steps)

    def _can_be(self, count: v1.Count) -> bool:
        if count.edge not in self._members.edges or count.turns > self.topology.plan(count.edge):
            return False
        most = self.topology.deployment.most_steps
        return count.steps == 0 or (math.isfinite(count.steps) and 1 <= count.steps <= most)

    def notes(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"turns": dict(self.turns), "steps": dict(self.steps), "noted": self.noted}

    def restore(self, notes: dict[str, Any]) -> None:
        """As a checkpoint has it; edges that are no longer there are forgotten."""
        known = self._members.edges
        turns, steps = notes.get("turns", {}), notes.get("steps", {})
        self.turns = {edge: int(own) for edge, own in turns.items() if edge in known}
        self.steps = {edge: float(own) for edge, own in steps.items() if edge in known}
        self.noted = int(notes.get("noted", 0))
