"""The periods of an edge, one after the other: Algorithm 1 as one server lives it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from sdfeel.deploy.cluster.averaging import Upload
from sdfeel.deploy.edge.periods import GRACE, Periods
from sdfeel.deploy.model.vectors import NotFinite, Vector
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.peers.mixer import Mixer
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.wire import frames

__all__ = ["Rounds"]


@dataclass(kw_only=True)
class Rounds(Periods):
    """Everybody waits for the slowest, within deadlines.

    An edge that missed an exchange of its neighbours keeps its model and goes on in their period,
    like a cluster in which nobody took part meanwhile: nothing it acknowledged is lost, and the
    next exchange mixes it in with its weight.
    """

    mixer: Mixer

    def __post_init__(self) -> None:
        super().__post_init__()
        self.on_saved = self.states.call_witnesses

    async def _gather(self, start: float) -> None:
        """Waits once for the whole network, so that the first exchange finds it.

        Not if the others are under way: they wait for us by now.
        """
        self.phase = "gathering"
        whole = 2 * self.topology.network.graph.number_of_edges()
        await self.signal.until(
            lambda: len(self.states.up()) == whole or self.states.reached() > self.done,
            lambda: start + self.deployment.deadlines.exchange,
        )

    async def _save_again(self) -> None:
        await self._save(self.done, await self._repair(self.model))

    def _is_behind(self, link: Link) -> bool:
        return link.done < self.done

    async def _period(self) -> None:
        start = time.perf_counter()
        self.times.begin()
        period = worked = self.done + 1
        uploads = await self._collect(worked)
        collected = time.perf_counter()
        model, order = await self._average(uploads)
        heading = self._heading(period)
        ahead = self._ahead(heading)
        if not ahead and not order and not self._is_pulled(period, heading):
            # Nobody in the network took part: the period did not happen.
            await asyncio.sleep(self.deployment.deadlines.retry)
            return
        used = 0
        if ahead:
            self.metrics.jumps.inc()
            self.cluster.awaited.clear()  # the others are under way: who comes home, comes
            self.log("jump", period=period, to=ahead, kept=order)
            period = ahead
        elif self.topology.is_inter(period):
            self.phase = "exchanging"
            model, used = await self._exchange(period, model)
        mixed = time.perf_counter()
        model = await self._repair(model)
        await self._save(period, model)
        self.cluster.acknowledge(worked, order)
        self.on_period(worked, period, order)
        ended = time.perf_counter()
        self._note(period, order, used, (start, collected, mixed, ended))

    def _ahead(self, heading: int) -> int:
        """The last exchange that others have finished, if it is the one we head for or later."""
        if not any(link.up and link.done >= heading for link in self.links.values()):
            return 0
        tau2 = self.topology.tau2
        reached = self.states.reached() // tau2 * tau2
        return reached if reached >= heading else 0

    async def _collect(self, period: int) -> dict[str, Upload]:
        """Hand out the work of a period and take in what comes back.

        A period counts where somebody in the network took part in it. So nothing comes back only
        if neighbours go on: one of them has, or follows, somebody who took part.
        """
        self.phase = "collecting"
        tau1 = self.topology.tau1
        given = await self.cluster.down.next(period, self.model)
        announced = frames.header(given, period)
        task = v1.Task(period=period, first=(period - 1) * tau1 + 1, steps=tau1, model=announced)
        heading = self._heading(period)

        def is_over() -> bool:
            return bool(self._ahead(heading)) or self._holds_up(period, heading)

        self.cluster.hand_out(period, given, lambda _: task)
        complete = True
        while not is_over():
            if not self.cluster.is_empty:
                self.phase = "collecting"
                complete = await self.cluster.collect(self.deployment.deadlines.round, is_over)
                if self.cluster.has_answers or is_over():
                    break
            self._say_nobody(period)
            await self.cluster.news(is_over)
        self.phase = "collecting"
        return self.cluster.close(complete)

    def _say_nobody(self, period: int) -> None:
        if self.cluster.sessions:
            self.log("nobody-answers", period=period, clients=sorted(self.cluster.sessions))
        else:
            self.phase = "no-clients"
            self.log("no-clients", period=period)

    def _heading(self, period: int) -> int:
        """The next period with exchanges."""
        return -(-period // self.topology.tau2) * self.topology.tau2

    def _is_pulled(self, period: int, heading: int) -> bool:
        """Whether a neighbour has finished the period or come to the exchanges that end its round.

        It took part, or followed another neighbour that did.
        """
        links = self.links.values()
        return any(link.is_at(heading) or (link.up and link.done >= period) for link in links)

    def _holds_up(self, period: int, heading: int) -> bool:
        """Whether neighbours wait for an edge that has nobody to wait for."""
        if not self._is_pulled(period, heading):
            return False
        grace = 0.0 if self.links.have_gone_on else GRACE * self.deployment.deadlines.retry
        if asyncio.get_running_loop().time() >= self._started + grace:
            self.cluster.awaited.clear()  # who has not come by now is a guest elsewhere
        return not self.cluster.awaited and not self.cluster.has_workers

    async def _average(self, uploads: dict[str, Upload]) -> tuple[Vector, list[str]]:
        """Eq. (3) over those who took part, and who did."""
        begun = self.cluster.down.held or self.model
        for name, reason in self.averaging.too_large(uploads, begun).items():
            del uploads[name]
            self.cluster.refuse(name, Refused("norm", reason))
        self.metrics.update_norm.set(self.averaging.usual)
        order = sorted(uploads, key=self.topology.clients.index)
        if not order:
            return self.model, []
        try:
            return await self.averaging.run(order, uploads, begun), order
        except NotFinite:
            for name in order:
                self.cluster.refuse(name, Refused("not-finite", "the mean is not finite"))
            return self.model, []

    async def _exchange(self, period: int, model: Vector) -> tuple[Vector, int]:
        start = time.perf_counter()
        view = await self.mixer.agree(period)
        agreed = time.perf_counter() - start
        mixed = await self.mixer.run(period, model, view)
        self.times.exchanged(time.perf_counter() - start, agreed + self.mixer.waited)
        return mixed
