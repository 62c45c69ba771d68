"""The periods of an edge, one after the other: Algorithm 1 as one server lives it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sdfeel.deploy.cluster.averaging import Upload
from sdfeel.deploy.cluster.drift import Drift
from sdfeel.deploy.cluster.server_step import ServerStep
from sdfeel.deploy.edge.periods import GRACE, Periods
from sdfeel.deploy.facts import facts
from sdfeel.deploy.model.vectors import NotFinite, Vector
from sdfeel.deploy.offload import offload
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.peers.mixer import Mixer
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.wire import frames

__all__ = ["Rounds"]

ATTEMPTS = 3  # to take part in an exchange of others that go on meanwhile


@dataclass(kw_only=True)
class Rounds(Periods):
    """Everybody waits for the slowest, within deadlines.

    An edge that missed an exchange of its neighbours keeps its model and goes on in their period,
    like a cluster in which nobody took part meanwhile: nothing it acknowledged is lost, and the
    next exchange mixes it in with its weight.
    """

    mixer: Mixer
    server_step: ServerStep
    drift: Drift | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.on_saved = self.states.call_witnesses
        self._mean = self.model, self.model  # what clients began with last, and their mean
        if self.drift is not None:  # what a client learns of a period must be on the disk
            self.lag, self.cluster.beside = 0, self.drift.beside

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
        before, model = self.model, await self._repair(self.model)
        if self.drift is not None:
            await self.drift.mixed(before, model, self.period)
        self._go_on(self.period, model, **self._remembered)
        await self._wait_for_disk(0)

    @property
    def _remembered(self) -> dict[str, Any]:
        """What methods remember, for a checkpoint."""
        if self.drift is None:
            return {"rows": {**self.server_step.rows, **self.averaging.rows}}
        rows = {**self.server_step.rows, **self.averaging.rows, **self.drift.rows}
        return {"rows": rows, "pace": {"correction": self.drift.notes}}

    def _is_behind(self, link: Link) -> bool:
        return link.done < self.done

    async def _period(self) -> None:
        start = time.perf_counter()
        self.times.begin()
        worked = self.period + 1
        uploads = await self._collect(worked)
        collected = time.perf_counter()
        model, order = await self._average(uploads)
        averaged, answers = model, {name: uploads[name].period for name in order}
        if self.drift is not None and order:
            await self.drift.averaged(*self._mean, worked, answers, uploads)
        self.cluster.uploads = {}
        heading = self._heading(worked)
        if not order and not self._ahead(heading) and not self._is_pulled(worked, heading):
            # Nobody in the network took part: the period did not happen.
            await asyncio.sleep(self.deployment.deadlines.retry)
            return
        period, model, used = await self._exchange_where_the_others_are(worked, model, order)
        mixed = time.perf_counter()
        model = await self._repair(model)
        finished = self._over(worked, period, answers, used, (start, collected, mixed))
        if self.drift is not None:
            await self.drift.mixed(averaged, model, worked)
        self._go_on(period, model, finished, **self._remembered)
        await self._wait_for_disk()

    async def _exchange_where_the_others_are(
        self, worked: int, model: Vector, order: list[str]
    ) -> tuple[int, Vector, int]:
        """The period in which the model is mixed, the model after it, and links used.

        An edge that comes late goes on to the next exchange of the others, with what its clients
        did meanwhile.
        """
        period, used = worked, 0
        for _ in range(ATTEMPTS):
            ahead = self._ahead(self._heading(period))
            if ahead:
                period = self._catch_up(period, ahead, order)
            if period == ahead or not self.topology.is_inter(period):
                break
            self.phase = "exchanging"
            self.links.head_for(period)
            model, used = await self._exchange(period, model)
            if used or not self._ahead(period):
                break
        return period, model, used

    def _catch_up(self, period: int, ahead: int, order: list[str]) -> int:
        """The period to go on in: with nothing to give, the one that the others have finished."""
        self.cluster.awaited.clear()  # the others are under way: who comes home, comes
        following = ahead + self.topology.tau2
        to = following if order and following <= self.last else ahead
        self.node.tell(facts.Jump(period=period, to=to, kept=order))
        return to

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
        if neighbours go on: one of them has, or follows, somebody who took part. If the others are
        ahead when the period begins, it is skipped; if they are later, the clients finish it.
        """
        self.phase = "collecting"
        tau1 = self.topology.tau1
        given = await self.cluster.down.next(period, self.model)
        announced = frames.header(given, period)
        task = v1.Task(period=period, first=(period - 1) * tau1 + 1, steps=tau1, model=announced)
        heading = self._heading(period)
        self.links.head_for(heading)
        if self._ahead(heading):
            return {}

        def is_over() -> bool:
            return self._holds_up(period, heading)

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

    async def _all_since(self, begun: Vector, uploads: dict[str, Upload]) -> dict[str, Upload]:
        """The same updates of clients that have begun with this model, or with an earlier one."""
        for name, upload in list(uploads.items()):
            try:
                uploads[name] = await offload(
                    begun.is_large, partial(upload.since, begun, self.store.folder)
                )
            except NotFinite:
                del uploads[name]
                self.cluster.refuse(name, Refused("not-finite", "too far from the model of now"))
        return uploads

    async def _average(self, uploads: dict[str, Upload]) -> tuple[Vector, list[str]]:
        """Eq. (3) over those who took part, what the server makes of it, and who did."""
        begun = self.cluster.down.held or self.model
        uploads = await self._all_since(begun, uploads)
        for name, reason in self.averaging.too_large(uploads, begun).items():
            del uploads[name]
            self.cluster.refuse(name, Refused("norm", reason))
        self.metrics.update_norm.set(self.averaging.usual)
        order = sorted(uploads, key=self.topology.order.__getitem__)
        if not order:
            return self.model, []
        try:
            mean = await self.averaging.run(order, uploads, begun, self.period + 1)
            model = await self.server_step.take(begun, mean)
            self._mean = begun, mean
            return model, order
        except NotFinite:
            for name in order:
                self.cluster.refuse(name, Refused("not-finite", "the mean is not finite"))
            return self.model, []

    async def _exchange(self, period: int, model: Vector) -> tuple[Vector, int]:
        start = time.perf_counter()
        was_paused = self.links.is_paused
        self.links.pause(False)
        view = await self.mixer.agree(period, was_paused)
        agreed = time.perf_counter() - start
        mixed = await self.mixer.run(period, model, view)
        self.times.exchanged(time.perf_counter() - start, agreed + self.mixer.waited)
        return mixed
