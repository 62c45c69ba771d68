"""Periods in which everybody waits for the slowest, within deadlines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sdfeel.deploy.cluster.averaging import Upload
from sdfeel.deploy.edge.carrier import GRACE, Carrier
from sdfeel.deploy.facts import facts
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.peers.mixer import Mixer
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.wire import frames

__all__ = ["Rounds"]

ATTEMPTS = 3  # to take part in an exchange of others that go on meanwhile


@dataclass(kw_only=True)
class Rounds(Carrier):
    """An edge that missed an exchange of its neighbours keeps its model and goes on in their
    period, like a cluster in which nobody took part meanwhile: nothing it acknowledged is lost, and
    the next exchange mixes it in with its weight.
    """

    mixer: Mixer

    def __post_init__(self) -> None:
        super().__post_init__()
        self.on_saved, self.mixer.move = self.states.call_witnesses, self.move
        self.rest = self.deployment.deadlines.retry

    async def _gather(self, start: float) -> None:
        """Waits once for the whole network, so that the first exchange finds it.

        Not if the others are under way: they wait for us by now.
        """
        self.phase = "gathering"
        whole = 2 * self.topology.at(self.period).network.graph.number_of_edges()
        await self.signal.until(
            lambda: len(self.states.up()) == whole or self.states.reached() > self.done,
            lambda: start + self.deployment.deadlines.exchange,
        )

    def _is_behind(self, link: Link) -> bool:
        return link.done < self.done

    async def _begin(self) -> bool:
        return True

    # Its clients.

    async def _collect(self, period: int) -> dict[str, Upload]:
        """A period counts where somebody in the network took part in it. So nothing comes back only
        if neighbours go on: one of them has, or follows, somebody who took part. If the others are
        ahead when the period begins, it is skipped; if they are later, the clients finish it.
        """
        self.phase = "collecting"
        tau1 = self.topology.tau1
        given = await self.cluster.down.next((period - 1) * tau1, self._kept)
        announced = frames.header(given, period)
        task = v1.Task(period=period, first=(period - 1) * tau1 + 1, steps=tau1, model=announced)
        heading = self._heading(period)
        self.links.head_for(heading)
        if self._ahead(heading):
            return {}

        def is_over() -> bool:
            return self._holds_up(period)

        self.cluster.hand_out(period, given, self._tasks(task), takes_late=True)
        complete = True
        while not is_over():
            if not self.cluster.is_empty:
                self.phase = "collecting"
                complete = await self.cluster.collect(is_over)
                if self.cluster.has_answers or is_over():
                    break
            self._say_nobody(period)
            await self.cluster.news(is_over)
        self.phase = "collecting"
        return self.cluster.close(complete)

    def _tasks(self, task: v1.Task) -> Callable[[str], v1.Task]:
        """The same work for every client."""
        drift = self.drift
        return (lambda _: task) if drift is None else lambda client: drift.filled(task, client)

    def _weigh(self, period: int, uploads: dict[str, Upload]) -> tuple[float, dict[str, int]]:
        return 1.0, dict.fromkeys(uploads, (period - 1) * self.topology.tau1)

    def _holds_up(self, period: int) -> bool:
        """Whether neighbours wait for an edge that has nobody to wait for."""
        if not self._is_pulled(period):
            return False
        grace = 0.0 if self.links.have_gone_on else GRACE * self.deployment.deadlines.retry
        if asyncio.get_running_loop().time() >= self._started + grace:
            self.cluster.awaited.clear()  # who has not come by now is a guest elsewhere
        return not self.cluster.awaited and not self.cluster.has_workers

    # The others.

    def _heading(self, period: int) -> int:
        """The next period with exchanges."""
        return -(-period // self.topology.tau2) * self.topology.tau2

    def _is_pulled(self, period: int) -> bool:
        """A neighbour has finished the period, or come to the exchanges that end its round."""
        heading, links = self._heading(period), self.links.values()
        return any(link.is_at(heading) or (link.up and link.done >= period) for link in links)

    def _ahead(self, heading: int) -> int:
        """The last exchange that others have finished, if it is the one we head for or later."""
        if not any(link.up and link.done >= heading for link in self.links.values()):
            return 0
        tau2 = self.topology.tau2
        reached = self.states.reached() // tau2 * tau2
        return reached if reached >= heading else 0

    async def _exchange(self, period: int, order: list[str]) -> tuple[int, int]:
        """An edge that comes late goes on to the next exchange of the others, with what its clients
        did meanwhile.
        """
        used = 0
        for _ in range(ATTEMPTS):
            ahead = self._ahead(self._heading(period))
            if ahead:
                period = self._catch_up(period, ahead, order)
            if period == ahead or not self.topology.is_inter(period):
                break
            self.phase = "exchanging"
            self.links.head_for(period)
            used = await self._mix(period)
            if used or not self._ahead(period):
                break
        return period, used

    def _catch_up(self, period: int, ahead: int, order: list[str]) -> int:
        """The period to go on in: with nothing to give, the one that the others have finished."""
        self.cluster.awaited.clear()  # the others are under way: who comes home, comes
        following = ahead + self.topology.tau2
        to = following if order and following <= self.last else ahead
        self.node.tell(facts.Jump(period=period, to=to, kept=order))
        return to

    async def _mix(self, period: int) -> int:
        start = time.perf_counter()
        was_paused = self.links.is_paused
        self.links.pause(False)
        view = await self.mixer.agree(period, was_paused)
        agreed = time.perf_counter() - start
        used = await self.mixer.run(period, await self.current(), view)
        self.times.exchanged(time.perf_counter() - start, agreed + self.mixer.waited)
        return used

    def _notes(self) -> dict[str, Any]:
        return {}
