"""The periods of an edge: what it has learned so far, what is on its disk, and how it ends.

How one period goes is for a pace to say: `rounds` has Algorithm 1, `turns` edges that wait for no
other cluster.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sdfeel.algorithm.methods.averaging import Rule
from sdfeel.deploy.cluster.averaging import ClusterMean
from sdfeel.deploy.cluster.cluster import Cluster
from sdfeel.deploy.edge.adoption import Adopter
from sdfeel.deploy.facts.period_times import PeriodTimes
from sdfeel.deploy.model.disk import Disk
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import Change, Vector, probe
from sdfeel.deploy.node import Node
from sdfeel.deploy.offload import offload
from sdfeel.deploy.peers.agreement_notes import dump
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.peers.link_states import LinkStates
from sdfeel.deploy.peers.links import Links

__all__ = ["GRACE", "Periods"]

GRACE = 5  # attempts of a client to come home, before an edge without any goes on alone


@dataclass(kw_only=True)
class Periods(ABC):
    """A period ends durable: what clients were told is accepted, and what they are given to work
    on, is on disk.

    last      the number of the last period
    adopter   of an edge that has no checkpoint
    saved     the number of the last checkpoint on disk
    """

    node: Node
    store: Store
    model: Vector
    done: int
    last: int
    cluster: Cluster
    links: Links
    states: LinkStates
    adopter: Adopter | None = None
    saved: int = 0
    phase: str = "starting"
    period_seconds: float = 0.0
    times: PeriodTimes = field(default_factory=PeriodTimes)

    def __post_init__(self) -> None:
        self.deployment, self.topology = self.node.deployment, self.node.topology
        self.log, self.metrics, self.signal = self.node.log, self.node.metrics, self.node.signal
        table = self.deployment.averaging
        self._saving: asyncio.Future[None] | None = None
        self.on_period: Callable[[int, int, list[str]], None] = lambda *_: None
        self.on_saved: Callable[[], None] = lambda: None
        self.disk = Disk(self.log, self.metrics, self.deployment.deadlines.retry)
        self._started = 0.0
        rule = Rule(table.rule, table.limit, table.trim)
        self.averaging = ClusterMean(self.topology, rule, table.bound, self.store.folder)

    @abstractmethod
    async def _gather(self, start: float) -> None:
        """Waits, once, for those without whom the first period would be a waste."""

    @abstractmethod
    async def _period(self) -> None:
        """The next one, to its end on the disk."""

    @abstractmethod
    async def _save_again(self) -> None:
        """The last period, with what links have settled since."""

    @abstractmethod
    def _is_behind(self, link: Link) -> bool:
        """Whether a neighbour still needs an edge that is at its end."""

    @property
    def is_ready(self) -> bool:
        """Whether it can do its part: a client is there, and the disk takes checkpoints."""
        return bool(self.cluster.sessions) and not self.disk.problem

    async def run(self) -> None:
        """All periods, from the last one that is durable."""
        loop = asyncio.get_running_loop()
        start = self._started = loop.time()
        loop.call_later(GRACE * self.deployment.deadlines.retry, self.signal.notify)
        if self.adopter is not None:
            await self._adopt(self.adopter, start)
        await self._gather(start)
        while self.done < self.last:
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

    async def _linger(self) -> None:
        """Stays until neighbours and clients know, so that nobody is left waiting or in doubt."""
        start = asyncio.get_running_loop().time()

        def over() -> bool:
            return self.links.may_leave(self._is_behind) and not self.cluster.sessions

        def deadline() -> float:
            return start + self.deployment.deadlines.exchange

        while await self.signal.until(lambda: over() or self.links.is_unsaved, deadline):
            if not self.links.is_unsaved:
                return
            await self._save_again()
        for peer, id_ in self.links.agreement.open:
            self.log("unsettled", peer=peer, key=id_[:2], ballot=id_.ballot)

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
        checkpoint = self._noted(period, model)
        await self._write(checkpoint)
        self.model = model
        self._is_saved(checkpoint)

    def _noted(self, period: int, model: Vector, **fields: Any) -> EdgeCheckpoint:
        """A checkpoint begins: what the links remember at this moment goes with the model."""
        changes: list[Change] = []
        notes = dump(self.links.agreement, changes)
        self.links.is_unsaved = False
        return EdgeCheckpoint(period, model, notes, changes, **fields)

    async def _write(self, checkpoint: EdgeCheckpoint) -> None:
        is_saved = False
        while not is_saved:
            self._saving = asyncio.ensure_future(asyncio.to_thread(self.store.save, checkpoint))
            is_saved = await self.disk.took(self._saving)

    def _is_saved(self, checkpoint: EdgeCheckpoint) -> None:
        self.done = checkpoint.done
        self.saved = checkpoint.agreement["checkpoint"]
        self.links.saved(self.done, self.saved)
        self.on_saved()
        self.signal.notify()

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
        self.times.end(phases["collect"], self.period_seconds, self.topology.is_inter(period))
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
