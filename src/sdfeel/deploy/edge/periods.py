"""The periods of an edge: what it has learned so far, what is on its disk, and how it ends.

How one period goes is for a pace to say: `rounds` has Algorithm 1, `turns` edges that wait for no
other cluster.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sdfeel.deploy.cluster.averaging import ClusterMean
from sdfeel.deploy.cluster.cluster import Cluster
from sdfeel.deploy.edge.adoption import Adopter
from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.period_times import PeriodTimes
from sdfeel.deploy.model.disk import Disk
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import Change, Vector, probe
from sdfeel.deploy.node import Node
from sdfeel.deploy.offload import offload
from sdfeel.deploy.peers.agreement import Standing
from sdfeel.deploy.peers.agreement_notes import dump
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.peers.link_states import LinkStates
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.wire.packing import PACKINGS

__all__ = ["GRACE", "Finished", "Periods"]

# Periods that may be over and not yet on the disk; above it an edge pauses.
LAG = 6
FLUSH_SECONDS = 1.0  # that an edge which is told to stop waits for its disk
PAUSE_SECONDS = 0.1  # that it waits for its disk before it tells its neighbours
IN_DOUBT_TIMES = 5  # the deadline of an exchange, for an edge that is at its end and in doubt
GRACE = 5  # attempts of a client to come home, before an edge without any goes on alone


@dataclass(frozen=True)
class Finished:
    """A period that is over, and acknowledged once it is on the disk.

    worked   the period whose work clients had
    period   its number: later than `worked` where the edge has caught up with the others
    collect, mix  seconds of these phases
    ended    when it was over, by `time.perf_counter`
    """

    worked: int
    period: int
    answers: dict[str, int]
    used: int
    collect: float
    mix: float
    ended: float

    @property
    def order(self) -> list[str]:
        return list(self.answers)


@dataclass(kw_only=True)
class Periods(ABC):
    """The disk writes a period while the next ones go on; what clients are told is accepted is on
    it. An edge whose disk falls behind by more than a few periods pauses, and says so.

    period    the last one that is over
    done      the last one that is on the disk, with the model `durable`
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
        self.metrics, self.signal = self.node.metrics, self.node.signal
        table = self.deployment.averaging
        self.period, self.durable = self.done, self.model
        self._unsaved: list[Finished] = []
        self._pending: EdgeCheckpoint | None = None
        self._is_writing = False
        self._has_participants = True
        self._saving: asyncio.Future[None] | None = None
        # A client that keeps its compression error must know what arrived before its next message.
        remembers = self.deployment.codecs.up in PACKINGS and (
            PACKINGS[self.deployment.codecs.up].remembers
        )
        self.lag = 0 if remembers else LAG
        self.on_period: Callable[[int, int, list[str]], None] = lambda *_: None
        self.on_saved: Callable[[], None] = lambda: None
        self.disk = Disk(self.node.tell, self.deployment.deadlines.retry)
        self._started = 0.0
        self.averaging = ClusterMean(
            self.topology, table.as_rule, table.bound, self.store.folder, self.node.tell
        )

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
        while self.period < self.last:
            await self._period()
        await self._wait_for_disk(0)
        self.phase = "finished"
        self.node.tell(facts.Finished(period=self.done))
        self.cluster.finish(self.done)
        await self._linger()

    async def _adopt(self, adopter: Adopter, start: float) -> None:
        """Goes on from the neighbours' model rather than spoil it with the first one."""
        self.phase = "adopting"
        found = await adopter.run(start, self.model)
        if found is not None:
            self.cluster.awaited.clear()
            self._go_on(*found)
            await self._wait_for_disk(0)

    async def _linger(self) -> None:
        """Stays until neighbours and clients know, so that nobody is left waiting or in doubt."""
        start = asyncio.get_running_loop().time()

        def over() -> bool:
            return self.links.may_leave(self._is_behind) and not self.cluster.sessions

        def deadline() -> float:
            """A neighbour that is there and knows the decision may be slow to tell it."""
            open_ = self.links.agreement.open.values()
            in_doubt = any(t.state is Standing.IN_DOUBT and self.links[t.peer].up for t in open_)
            times = IN_DOUBT_TIMES if in_doubt else 1
            return start + times * self.deployment.deadlines.exchange

        while await self.signal.until(lambda: over() or self.links.is_unsaved, deadline):
            if not self.links.is_unsaved:
                return
            await self._save_again()
        for peer, id_ in self.links.agreement.open:
            self.node.tell(facts.Unsettled(peer=peer, key=id_[:2], ballot=id_.ballot))

    async def _repair(self, model: Vector) -> Vector:
        """Adds what links turned out to have carried after all."""
        owed = self.links.agreement.owed
        while owed:
            peer, change = owed.pop(0)
            before, model = model, await self._add(change, model)
            start = probe(before) if self.deployment.audit else None
            end = probe(model) if self.deployment.audit else None
            self.node.tell(facts.Repaired(peer=peer, before=start, after=end))
        return model

    async def _add(self, late: Change, model: Vector) -> Vector:
        return await offload(model.is_large, lambda: late.applied(model, self.store.folder))

    def _say_nobody(self, period: int) -> None:
        """Nobody takes part here: once until somebody does again."""
        if not self.cluster.sessions:
            self.phase = "no-clients"
        if self._has_participants:
            self._has_participants = False
            silent = sorted(self.cluster.sessions)
            self.node.tell(facts.NoClients(period=period, silent=tuple(silent)))

    # The disk, beside the periods.

    def _go_on(
        self, period: int, model: Vector, finished: Finished | None = None, **notes: Any
    ) -> None:
        """Go on from this model; what the links remember at this moment is saved with it."""
        self.model, self.period = model, period
        changes: list[Change] = []
        agreement = dump(self.links.agreement, changes)
        self.links.is_unsaved = False
        self._pending = EdgeCheckpoint(period, model, agreement, changes, **notes)
        if finished is not None:
            self._unsaved.append(finished)
            self._has_participants |= bool(finished.order)
            self.on_period(finished.worked, period, finished.order)
        if not self._is_writing:
            self._is_writing = True
            self.node.background.spawn(self._write())

    async def _write(self) -> None:
        """Write the newest checkpoint, until there is none that is newer."""
        while self._pending is not None:
            checkpoint, self._pending = self._pending, None
            count = len(self._unsaved)
            is_saved = False
            while not is_saved:
                work = asyncio.to_thread(self.store.save, checkpoint)
                self._saving = asyncio.ensure_future(work)
                is_saved = await self.disk.took(self._saving)
            finished, self._unsaved = self._unsaved[:count], self._unsaved[count:]
            self._is_saved(checkpoint, finished)
        self._is_writing = False
        self.signal.notify()

    def _is_saved(self, checkpoint: EdgeCheckpoint, finished: list[Finished]) -> None:
        self.done, self.durable = checkpoint.done, checkpoint.model
        self.saved = checkpoint.agreement["checkpoint"]
        self.links.saved(self.done, self.saved)
        for period in finished:
            self.cluster.acknowledge(period.answers)
            self._note(period)
        self.on_saved()
        self.signal.notify()

    async def _wait_for_disk(self, most: int | None = None) -> None:
        """Pause until no more periods than `most` are not on the disk.

        The neighbours leave this edge out until it comes to an exchange again.
        """
        allowed = self.lag if most is None else most

        def is_enough() -> bool:
            return len(self._unsaved) <= allowed and (allowed > 0 or not self._is_writing)

        soon = asyncio.get_running_loop().time() + PAUSE_SECONDS
        if await self.signal.until(is_enough, lambda: soon):
            return
        phase, self.phase = self.phase, "paused"
        self.links.pause(True)
        await self.signal.until(is_enough)
        self.phase = phase

    async def flush(self) -> None:
        """Give the disk a moment to take the periods that are over."""
        end = asyncio.get_running_loop().time() + FLUSH_SECONDS
        if not self.disk.problem:
            await self.signal.until(lambda: not self._is_writing, lambda: end)

    async def settle(self) -> None:
        """Ended from outside, it may still be writing: nobody else must begin before it has."""
        if self._saving is not None:
            await asyncio.wait({self._saving})

    def _over(
        self, worked: int, period: int, answers: dict[str, int], used: int, times: tuple[float, ...]
    ) -> Finished:
        """A period is over; `times`: when it began, had collected, and had mixed."""
        start, collected, mixed = times
        ended = time.perf_counter()
        self.period_seconds = ended - start
        self.times.end(collected - start, self.period_seconds, self.topology.is_inter(period))
        collect, mix = collected - start, mixed - collected
        return Finished(worked, period, answers, used, collect, mix, ended)

    def _note(self, finished: Finished) -> None:
        """A period is on the disk."""
        self.node.tell(
            facts.Period(
                period=finished.period,
                participants=finished.order,
                links_used=finished.used,
                collect=round(finished.collect, 6),
                mix=round(finished.mix, 6),
                save=round(time.perf_counter() - finished.ended, 6),
            )
        )
