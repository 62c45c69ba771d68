"""The periods of an edge, one after the other: Algorithm 1 as one server lives it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sdfeel.algorithm.averaging import Rule
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.exchange.mixer import Mixer
from sdfeel.deploy.link.agreement_notes import dump
from sdfeel.deploy.link.links import Links
from sdfeel.deploy.model import wire
from sdfeel.deploy.model.disk import Disk
from sdfeel.deploy.model.offload import offload
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import Change, NotFinite, Vector, probe
from sdfeel.deploy.node.adoption import Adopter
from sdfeel.deploy.node.averaging import ClusterMean, Upload
from sdfeel.deploy.node.cluster import Cluster
from sdfeel.deploy.observe.logs import Log
from sdfeel.deploy.observe.metrics import Metrics
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.waiting import Bell

__all__ = ["Rounds"]

GRACE = 5  # attempts of a client to come home, before an edge without any goes on alone


@dataclass
class Rounds:
    """What an edge has learned so far, and how it goes on.

    A period ends durable: what clients were told is accepted, and what they are given to work on,
    is on disk. An edge that missed an exchange of its neighbours keeps its model and goes on in
    their period, like a cluster in which nobody took part meanwhile: nothing it acknowledged is
    lost, and the next exchange mixes it in with its weight.
    """

    deployment: Deployment
    topology: Topology
    store: Store
    model: Vector
    done: int
    cluster: Cluster
    links: Links
    mixer: Mixer
    bell: Bell
    log: Log
    metrics: Metrics
    adopter: Adopter | None = None  # of an edge that has no checkpoint
    saved: int = 0  # the number of the last checkpoint on disk
    phase: str = "starting"
    period_seconds: float = 0.0
    period_phases: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        table = self.deployment.averaging
        self._saving: asyncio.Future[None] | None = None
        self.on_period: Callable[[int, int, list[str]], None] = lambda *_: None
        self.disk = Disk(self.log, self.metrics, self.deployment.deadlines.retry)
        self._started = 0.0
        rule = Rule(table.rule, table.limit, table.trim)
        self.averaging = ClusterMean(self.topology, rule, table.bound, self.store.folder)

    @property
    def is_ready(self) -> bool:
        """Whether it can do its part: a client or a neighbour is there."""
        return bool(self.cluster.sessions) or any(link.up for link in self.links.values())

    async def run(self) -> None:
        """All periods, from the last one that is durable."""
        loop = asyncio.get_running_loop()
        start = self._started = loop.time()
        loop.call_later(GRACE * self.deployment.deadlines.retry, self.bell.ring)
        if self.adopter is not None:
            await self._adopt(self.adopter, start)
        await self._gather(start)
        while self.done < self.topology.periods:
            await self._period()
        self.phase = "finished"
        self.log("finished", period=self.done)
        self.cluster.finish(self.done)
        await self._linger()

    async def _adopt(self, adopter: Adopter, start: float) -> None:
        """Goes on from the neighbours' model rather than spoil it with the first one."""
        self.phase = "adopting"
        found = await adopter.run(start, self.model)
        if found is not None:
            self.metrics.adoptions.inc()
            self.cluster.awaited.clear()
            await self._save(*found)

    async def _gather(self, start: float) -> None:
        """Waits once for the whole network, so that the first exchange finds it.

        Not if the others are under way: they wait for us by now.
        """
        self.phase = "gathering"
        whole = 2 * self.topology.network.graph.number_of_edges()
        await self.bell.until(
            lambda: len(self.mixer.states.up()) == whole or self.mixer.states.reached() > self.done,
            lambda: start + self.deployment.deadlines.exchange,
        )

    async def _linger(self) -> None:
        """Stays until neighbours and clients know, so that nobody is left waiting or in doubt."""
        start = asyncio.get_running_loop().time()

        def over() -> bool:
            return self.links.may_leave(self.done) and not self.cluster.sessions

        def deadline() -> float:
            return start + self.deployment.deadlines.exchange

        while await self.bell.until(lambda: over() or self.links.is_unsaved, deadline):
            if not self.links.is_unsaved:
                return
            await self._save(self.done, await self._repair(self.model))
        for peer, id_ in self.links.agreement.open:
            self.log("unsettled", peer=peer, key=id_[:2])

    async def _period(self) -> None:
        start = time.perf_counter()
        period = worked = self.done + 1
        uploads = await self._collect(worked)
        collected = time.perf_counter()
        model, order = await self._average(uploads)
        heading = -(-period // self.topology.tau2) * self.topology.tau2
        ahead = self._ahead(heading)
        used = 0
        if ahead:
            self.metrics.jumps.inc()
            self.cluster.awaited.clear()  # the others are under way: who comes home, comes
            self.log("jump", period=period, to=ahead, kept=order)
            period = ahead
        elif self.topology.is_inter(period):
            self.phase = "exchanging"
            model, used = await self._exchange(period, model)
            if not used and not order and self.links:
                # Nobody took part and nobody answered: the period did not happen.
                await asyncio.sleep(self.deployment.deadlines.retry)
                return
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
        reached = self.mixer.states.reached() // tau2 * tau2
        return reached if reached >= heading else 0

    async def _collect(self, period: int) -> dict[str, Upload]:
        self.phase = "collecting"
        heading = -(-period // self.topology.tau2) * self.topology.tau2
        if self.cluster.is_empty:
            # Alone, time stands still; with neighbours it is they who set the pace.
            forever = asyncio.get_running_loop().time() + 1e9
            await self.bell.until(lambda: self.is_ready, lambda: forever)
            if self.cluster.is_empty:
                return {}
        return await self.cluster.collect(
            period,
            self.model,
            self.deployment.deadlines.round,
            lambda: bool(self._ahead(heading)) or self._holds_up(heading),
        )

    def _holds_up(self, heading: int) -> bool:
        """Whether neighbours wait for an edge that has nobody to wait for."""
        if not any(link.is_at(heading) for link in self.links.values()):
            return False
        grace = 0.0 if self.links.have_gone_on else GRACE * self.deployment.deadlines.retry
        if asyncio.get_running_loop().time() >= self._started + grace:
            self.cluster.awaited.clear()  # who has not come by now is a guest elsewhere
        return not self.cluster.awaited and not self.cluster.has_workers

    async def _average(self, uploads: dict[str, Upload]) -> tuple[Vector, list[str]]:
        """Eq. (3) over those who took part, and who did."""
        for name, reason in self.averaging.too_large(uploads, self.model).items():
            del uploads[name]
            self.cluster.refuse(name, wire.Refused("norm", reason))
        self.metrics.update_norm.set(self.averaging.usual)
        order = sorted(uploads, key=self.topology.clients.index)
        try:
            return await self.averaging.run(order, uploads, self.model), order
        except NotFinite:
            for name in order:
                self.cluster.refuse(name, wire.Refused("not-finite", "the mean is not finite"))
            return self.model, []

    async def _exchange(self, period: int, model: Vector) -> tuple[Vector, int]:
        return await self.mixer.run(period, model, await self.mixer.agree(period))

    async def _repair(self, model: Vector) -> Vector:
        """Adds what links turned out to have carried after all."""
        owed = self.links.agreement.owed
        while owed:
            peer, change = owed.pop(0)
            before, model = model, await self._add(change, model)
            self.metrics.repairs.inc()
            fields = {}
            if self.deployment.audit:
                fields = {"before": probe(before), "after": probe(model)}
            self.log("repaired", peer=peer, **fields)
        return model

    async def _add(self, late: Change, model: Vector) -> Vector:
        return await offload(model.is_large, lambda: late.applied(model, self.store.folder))

    async def _save(self, period: int, model: Vector) -> None:
        changes: list[Change] = []
        notes = dump(self.links.agreement, changes)
        self.links.is_unsaved = False
        checkpoint = EdgeCheckpoint(period, model, notes, changes)
        is_saved = False
        while not is_saved:
            self._saving = asyncio.ensure_future(asyncio.to_thread(self.store.save, checkpoint))
            is_saved = await self.disk.took(self._saving)
        self.model, self.done = model, period
        self.saved = notes["checkpoint"]
        self.links.saved(period, self.saved)
        self.mixer.states.call_witnesses()
        self.bell.ring()

    async def settle(self) -> None:
        """Ended from outside, it may still be writing: nobody else must begin before it has."""
        if self._saving is not None:
            await asyncio.wait({self._saving})

    def _note(
        self, period: int, order: list[str], used: int, times: tuple[float, float, float, float]
    ) -> None:
        start, collected, mixed, ended = times
        self.period_seconds = ended - start
        phases = {"collect": collected - start, "mix": mixed - collected, "save": ended - mixed}
        self.period_phases = phases
        for phase, seconds in phases.items():
            self.metrics.phase.labels(phase).observe(seconds)
        self.metrics.period.set(period)
        self.metrics.participants.set(len(order))
        self.log(
            "period",
            period=period,
            participants=order,
            links_used=used,
            **{phase: round(seconds, 6) for phase, seconds in phases.items()},
        )
