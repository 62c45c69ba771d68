"""The turns of an edge that waits for no other cluster: see `sdfeel.algorithm.paces.asynchronous`.

A turn is a period of T_d seconds. Clients make as many steps as they can in it, from the model at
the end of the last one; at its end the edge takes what has come, normalised by the steps that each
says it made, and after every tau2-th turn swaps with its neighbours (`peers.flows`). Meanwhile
neighbours that are ready swap with it, so its model may move at any moment: all that moves it goes
through `_given`, one after the other, and a checkpoint has what was given when it began.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

from sdfeel.algorithm.paces.asynchronous import Asynchronous
from sdfeel.deploy.cluster.averaging import Upload
from sdfeel.deploy.cluster.server_step import ServerStep
from sdfeel.deploy.edge.periods import GRACE, Finished, Periods
from sdfeel.deploy.facts import facts
from sdfeel.deploy.model.vectors import NotFinite, Vector, combine, probe
from sdfeel.deploy.offload import offload
from sdfeel.deploy.peers.counts import Counts
from sdfeel.deploy.peers.flows import Flows
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.wire import frames

__all__ = ["Turns"]


@dataclass(kw_only=True)
class Turns(Periods):
    """Nobody waits for another cluster.

    steps   by client, those that are in the model: its next one is the one after them
    """

    pace: Asynchronous
    flows: Flows
    counts: Counts
    steps: dict[str, int]
    server_step: ServerStep

    def __post_init__(self) -> None:
        super().__post_init__()
        self.me = self.node.name
        self._moving = asyncio.Lock()
        self._begun = self.model  # what clients begin with
        self.on_saved = self.states.declare
        self.states.steps = lambda: self.counts.steps.get(self.me, 0.0)
        self.states.on_state = self._hear_signed
        self._is_early = False  # a checkpoint is about to be written before a turn is over
        self.flows.current = self._current
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
        self._begun = self.model
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

    async def _period(self) -> None:
        if self._is_left_behind:
            self.node.tell(facts.Jump(period=self.period, to=self.last, kept=[]))
            await self._keep(self.last)
            return
        turn = self.period + 1
        if not self.cluster.sessions and not self._is_pulled(turn):
            self._say_nobody(turn)
        await self.signal.until(
            lambda: bool(self.cluster.sessions) or self._is_pulled(turn) or self._is_left_behind
        )
        self.phase = "collecting"
        if not self.cluster.sessions and not self._is_pulled(turn):
            return
        self.times.begin()
        start, begun = time.perf_counter(), self._begun
        uploads = await self._collect(turn, begun)
        collected = time.perf_counter()
        order = await self._aggregate(turn, begun, uploads)
        self.cluster.uploads = {}
        if not order and not self._is_pulled(turn):
            return  # nobody in the network took part: the turn did not happen
        used: list[str] = []
        if self.topology.is_inter(turn) and self.links:
            self.phase = "exchanging"
            self.links.pause(False)
            exchanging = time.perf_counter()
            used = await self.flows.run(turn, await self._current())
            self.times.exchanged(time.perf_counter() - exchanging, waited=0.0)
            self.counts.note()
        mixed = time.perf_counter()
        finished = self._over(
            turn, turn, dict.fromkeys(order, turn), len(used), (start, collected, mixed)
        )
        await self._keep(turn, finished)
        await self._wait_for_disk()

    def _is_pulled(self, turn: int) -> bool:
        """Whether a neighbour has come as far: it took part, or followed another that did."""
        counted, links = self.topology.counted, self.links.values()
        return any(link.up and counted(link.done, link.peer, self.me) >= turn for link in links)

    @property
    def _is_left_behind(self) -> bool:
        """Whether the others have finished and gone; two must have said so if there are two."""
        if not self.links or any(link.up for link in self.links.values()):
            return False
        told = self.states.told().items()
        finished = {edge for edge, done in told if done >= self.topology.plan(edge)}
        finished |= {peer for peer, link in self.links.items() if not self._is_behind(link)}
        return len(finished) >= min(2, len(self.topology.edges) - 1)

    async def _collect(self, turn: int, begun: Vector) -> dict[str, Upload]:
        loop = asyncio.get_running_loop()
        end, announced = loop.time() + self.seconds, frames.header(begun, turn)

        def task(name: str) -> v1.Task:
            return v1.Task(
                period=turn,
                first=self.steps.get(name, 0) + 1,
                steps=self.deployment.most_steps,
                seconds=max(end - loop.time(), 1e-3),
                model=announced,
            )

        self.cluster.hand_out(turn, begun, task)
        await asyncio.sleep(end - loop.time())
        answered = self.cluster.everybody_answered or self.cluster.is_empty
        return self.cluster.close(answered)

    async def _aggregate(self, turn: int, begun: Vector, uploads: dict[str, Upload]) -> list[str]:
        """Normalised aggregation over those who made a step in time; who that was."""
        order = self._let_in(begun, uploads)
        steps = self.averaging.mean_steps(order, uploads)
        self.counts.aggregated(turn, steps or None)
        if not order:
            return []
        at = turn * self.seconds
        scale = self.pace.scale(self.counts.rate(self.me), self.counts.slowest, at)
        try:
            vectors, weights = await self.averaging.normalised(
                order, uploads, begun, scale, turn, self.steps
            )
            async with self._moving:
                model = await self._given()
                parts, counted = [model, *vectors], [1.0, *weights]
                moved = await offload(
                    model.is_large, lambda: combine(parts, counted, self.store.folder)
                )
                self.model = await self.server_step.take(model, moved)
        except NotFinite:
            for name in order:
                self.cluster.refuse(name, Refused("not-finite", "the mean is not finite"))
            return []
        self.metrics.steps.set(steps)
        for name in order:
            self.steps[name] = self.steps.get(name, 0) + uploads[name].steps
        return order

    def _let_in(self, begun: Vector, uploads: dict[str, Upload]) -> list[str]:
        """Without updates that would count for far more than the others'."""
        order = sorted(uploads, key=self.topology.order.__getitem__)
        mean = self.averaging.mean_steps(order, uploads)
        counted = {
            name: replace(one, moved=one.moved * mean / one.steps) for name, one in uploads.items()
        }
        for name, reason in self.averaging.too_large(counted, begun).items():
            del uploads[name]
            order.remove(name)
            self.cluster.refuse(name, Refused("norm", reason))
        self.metrics.update_norm.set(self.averaging.usual)
        return order

    # The model, which links move at any time.

    async def _current(self) -> Vector:
        async with self._moving:
            return await self._given()

    async def _given(self) -> Vector:
        """The model with what links have given since; by whoever holds `_moving`."""
        owed = self.links.agreement.owed
        while owed:
            # They stay owed until the model has them: a checkpoint has one or the other.
            taken = list(owed)
            total = taken[0][1]
            for _, change in taken[1:]:
                total = total + change
            before, self.model = self.model, await self._add(total, self.model)
            del owed[: len(taken)]
            if self.deployment.audit:
                peers, moved = [peer for peer, _ in taken], total.probe()
                start, end = probe(before), probe(self.model)
                self.node.tell(facts.Given(peers=peers, moved=moved, before=start, after=end))
        return self.model

    async def _keep(self, period: int, finished: Finished | None = None) -> None:
        """Go on from the model with all that links have given until now."""
        async with self._moving:
            model = await self._given()
            notes = {"counts": self.counts.notes(), "steps": dict(self.steps)}
            rows = {**self.server_step.rows, **self.averaging.rows}
            self._go_on(max(period, self.period), model, finished, pace=notes, rows=rows)
            self._begun = model
            self.flows.unsaved.clear()
            self._is_early = False

    def _hear_signed(self, state: v1.LinkState) -> None:
        self.counts.hear_signed(state.edge, state.done, state.steps)

    def _save_soon(self) -> None:
        """Before the period is over: neighbours keep what they gave us until it is on our disk."""
        if not self._is_early:
            self._is_early = True
            self.node.background.spawn(self._keep(self.period))

    async def _save_again(self) -> None:
        await self._keep(self.period)
        await self._wait_for_disk(0)
