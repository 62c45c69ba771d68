"""The turns of an edge that waits for no other cluster: see `sdfeel.algorithm.paces.asynchronous`.

A turn is a period of T_d seconds. Clients make as many steps as they can in it, from the model at
the end of the last one; at its end the edge takes what has come, normalised by the steps that each
says it made, and after every tau2-th turn swaps with its neighbours (`peers.flows`). Meanwhile
neighbours that are ready swap with it, so its model may move at any moment, and a checkpoint has
what was given when it began.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from sdfeel.algorithm.paces.asynchronous import Asynchronous
from sdfeel.deploy.cluster.averaging import Upload
from sdfeel.deploy.edge.carrier import GRACE, Carrier
from sdfeel.deploy.facts import facts
from sdfeel.deploy.peers.counts import Counts
from sdfeel.deploy.peers.flows import Flows
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.wire import frames

__all__ = ["Turns"]

ROUNDING = 1e-6  # of a sum of mean steps that is a whole number


@dataclass(kw_only=True)
class Turns(Carrier):
    """Nobody waits for another cluster.

    made    the mean steps of its clients, over all turns
    """

    pace: Asynchronous
    flows: Flows
    counts: Counts
    made: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self.on_saved = self.states.declare
        self.states.steps = lambda: self.counts.steps.get(self.me, 0.0)
        self.states.on_state = self._hear_signed
        self._is_early = False  # a checkpoint is about to be written before a turn is over
        self.flows.current = self.current
        self.flows.on_full = self._save_soon

    @property
    def seconds(self) -> float:
        """T_d."""
        return self.topology.seconds(self.me)

    async def _gather(self, start: float) -> None:
        """For the own clients; at the very start, and if only something may have to be settled, for
        the neighbours.
        """
        self.phase = "gathering"
        self.counts.turns[self.me] = self.period
        self.flows.is_open = True
        deadlines = self.deployment.deadlines
        goes_on = 0 < self.done < self.last
        timeout = GRACE * deadlines.retry if goes_on else deadlines.exchange

        def are_there() -> bool:
            links = self.links.values()
            if self.done >= self.last:
                return all(link.up for link in links)
            under_way = goes_on or any(link.done for link in links)
            return not self.cluster.awaited and (under_way or all(link.up for link in links))

        await self.signal.until(are_there, lambda: start + timeout)
        self.cluster.awaited.clear()

    def _is_behind(self, link: Link) -> bool:
        return link.done < link.periods

    # One turn.

    async def _begin(self) -> bool:
        """Waits for a client here, or for a neighbour that had one."""
        period = self.period + 1
        if self._is_alone(period) and not self._is_left_behind:
            self._say_nobody(period)
        await self.signal.until(lambda: not self._is_alone(period) or self._is_left_behind)
        if self._is_left_behind:
            self.node.tell(facts.Jump(period=self.period, to=self.last, kept=[]))
            await self._keep(self.last)
            return False
        self.phase = "collecting"
        return True

    def _is_alone(self, turn: int) -> bool:
        return not self.cluster.sessions and not self._is_pulled(turn)

    def _is_pulled(self, period: int) -> bool:
        counted, links = self.topology.counted, self.links.values()
        return any(link.up and counted(link.done, link.peer, self.me) >= period for link in links)

    @property
    def _is_left_behind(self) -> bool:
        """Whether the others have finished and gone; two must have said so if there are two."""
        if not self.links or any(link.up for link in self.links.values()):
            return False
        reports = self.states.told().items()
        finished = {edge for edge, done in reports if done >= self.topology.plan(edge)}
        finished |= {peer for peer, link in self.links.items() if not self._is_behind(link)}
        return len(finished) >= min(2, len(self.topology.at(self.period).edges) - 1)

    async def _collect(self, period: int) -> dict[str, Upload]:
        """What comes in T_d seconds."""
        loop = asyncio.get_running_loop()
        given = await self.cluster.down.next(int(self.made + ROUNDING), self._kept)
        end, announced = loop.time() + self.seconds, frames.header(given, period)

        def task(name: str) -> v1.Task:
            return v1.Task(
                period=period,
                first=self.steps.get(name, 0) + 1,
                steps=self.deployment.most_steps,
                seconds=max(end - loop.time(), 1e-3),
                model=announced,
            )

        self.cluster.hand_out(period, given, task)
        await asyncio.sleep(end - loop.time())
        answered = self.cluster.everybody_answered or self.cluster.is_empty
        return self.cluster.close(answered)

    def _weigh(self, period: int, uploads: dict[str, Upload]) -> tuple[float, dict[str, int]]:
        """Edges that make more steps a second count less; and what a client made is counted."""
        steps = self.averaging.mean_steps(uploads, period)
        self.counts.aggregated(period, steps or None)
        if not uploads:
            return 0.0, {}
        self.made += steps
        self.metrics.steps.set(steps)
        made = {name: self.steps.get(name, 0) for name in uploads}
        rate, slowest = self.counts.rate(self.me), self.counts.slowest
        return self.pace.scale(rate, slowest, period * self.seconds), made

    async def _exchange(self, period: int, order: list[str]) -> tuple[int, int]:  # noqa: ARG002
        used: list[str] = []
        if self.topology.is_inter(period) and self.links:
            self.phase = "exchanging"
            self.links.pause(False)
            start = time.perf_counter()
            used = await self.flows.run(period, await self.current())
            self.times.exchanged(time.perf_counter() - start, waited=0.0)
            self.counts.note()
        return period, len(used)

    def _notes(self) -> dict[str, Any]:
        self.flows.unsaved.clear()
        self._is_early = False
        return {"counts": self.counts.notes(), "steps": dict(self.steps), "made": self.made}

    def _hear_signed(self, state: v1.LinkState) -> None:
        self.counts.hear_signed(state.edge, state.done, state.steps)

    def _save_soon(self) -> None:
        """Before the period is over: neighbours keep what they gave us until it is on our disk."""
        if not self._is_early:
            self._is_early = True
            self.node.background.spawn(self._keep(self.period))
