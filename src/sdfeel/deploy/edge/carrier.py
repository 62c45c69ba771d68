"""An edge carries out its periods: collect, take, exchange, save. Algorithm 1 of one server.

The model moves by changes that are added to it, of clients by eq. (3) and of links by eq. (5):

    w <- w + scale (h - w0 + sum_i weights_i (w_i - h))     its clients', who got h of its model w0
    w <- w + sum_j p_jd (w_j - w_d)                         a link's, or later what it owes

How long an edge waits for whom is for a pace to say: in `rounds` everybody waits for the slowest,
in `turns` nobody waits for another cluster.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any

from sdfeel.deploy.cluster.averaging import ClusterMean, Upload
from sdfeel.deploy.cluster.cluster import Cluster
from sdfeel.deploy.cluster.drift import Drift
from sdfeel.deploy.cluster.server_step import ServerStep
from sdfeel.deploy.edge.adoption import Adopter
from sdfeel.deploy.edge.saver import Finished, Saver
from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.period_times import PeriodTimes
from sdfeel.deploy.model.store import EdgeCheckpoint
from sdfeel.deploy.model.vectors import Change, NotFinite, Vector, probe
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.agreement import Standing
from sdfeel.deploy.peers.agreement_notes import dump
from sdfeel.deploy.peers.hearing import Hearing
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.peers.link_states import LinkStates
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.waiting import offload

__all__ = ["GRACE", "Carrier"]

PAUSE_SECONDS = 0.1  # that it waits for its disk before it tells its neighbours
IN_DOUBT_TIMES = 5  # the deadline of an exchange, for an edge that is at its end and in doubt
GRACE = 5  # attempts of a client to come home, before an edge without any goes on alone


@dataclass(kw_only=True)
class Carrier(ABC):
    """The disk writes a period while the next ones go on; an edge whose disk falls behind by more
    than a few periods pauses, and says so.

    model     with all that clients and links have given
    period    the last one that is over
    last      the number of the last period
    steps     by client, those that are in the model: its next one is the one after them
    adopter   of an edge that has no checkpoint
    """

    node: Node
    model: Vector
    last: int
    cluster: Cluster
    links: Links
    states: LinkStates
    saver: Saver
    averaging: ClusterMean
    hearing: Hearing
    server_step: ServerStep
    drift: Drift | None = None
    adopter: Adopter | None = None
    steps: dict[str, int] = field(default_factory=dict)
    phase: str = "starting"
    period_seconds: float = 0.0
    times: PeriodTimes = field(default_factory=PeriodTimes)

    def __post_init__(self) -> None:
        self.deployment, self.topology = self.node.deployment, self.node.topology
        self.metrics, self.signal = self.node.metrics, self.node.signal
        self.me, self.period = self.node.name, self.saver.done
        self.on_period: Callable[[int, int, list[str]], None] = lambda *_: None
        self.saver.on_saved = self._is_saved
        self.on_saved: Callable[[], None] = lambda: None
        self.rest = 0.0  # seconds after a period that did not happen
        if self.drift is not None:
            self.cluster.beside = self.drift.beside
        self._kept = self.model  # what the last checkpoint has, and clients begin with
        self._unmoved = self.model  # what links have moved since
        self._moving = asyncio.Lock()
        self._has_participants = True
        self._started = 0.0

    # What a pace says.

    @abstractmethod
    async def _gather(self, start: float) -> None:
        """Waits, once, for those without whom the first period would be a waste."""

    @abstractmethod
    async def _begin(self) -> bool:
        """Whether there is anything to do in the next period; waits until there is."""

    @abstractmethod
    async def _collect(self, period: int) -> dict[str, Upload]:
        """Hand out the work of a period and take in what comes back."""

    @abstractmethod
    def _weigh(self, period: int, uploads: dict[str, Upload]) -> tuple[float, dict[str, int]]:
        """How much the clients' change counts; and by client, the iterations it had made before."""

    @abstractmethod
    def _is_pulled(self, period: int) -> bool:
        """Whether a neighbour has come as far: it took part, or followed another that did."""

    @abstractmethod
    async def _exchange(self, period: int, order: list[str]) -> tuple[int, int]:
        """Exchange with neighbours: the period in which that is, and the links used."""

    @abstractmethod
    def _is_behind(self, link: Link) -> bool:
        """Whether a neighbour still needs an edge that is at its end."""

    @abstractmethod
    def _notes(self) -> dict[str, Any]:
        """What it counts, for a checkpoint that begins now."""

    # All periods.

    @property
    def done(self) -> int:
        """The last period that is on the disk."""
        return self.saver.done

    @property
    def is_ready(self) -> bool:
        """Whether it can do its part: a client is there, and the disk takes checkpoints in time."""
        return bool(self.cluster.sessions) and not self.saver.problem and self.phase != "paused"

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
        adopted = await adopter.run(start, self.model)
        if adopted is not None:
            self.cluster.awaited.clear()
            period, self.model = adopted
            self._go_on(period)
            await self._wait_for_disk(0)

    async def _period(self) -> None:
        """The next one, to its end on the disk. It counts where somebody took part in it."""
        worked = self.period + 1
        if not await self._begin():
            return
        self.times.begin()
        start = time.perf_counter()
        uploads = await self._collect(worked)
        collected = time.perf_counter()
        answers = await self._take(worked, uploads)
        self.cluster.uploads = {}
        if not answers and not self._is_pulled(worked):
            await asyncio.sleep(self.rest)  # nobody in the network took part: it did not happen
            return
        period, used = await self._exchange(worked, list(answers))
        mixed = ended = time.perf_counter()
        self.period_seconds = ended - start
        is_inter = self.topology.is_inter(period)
        self.times.end(collected - start, self.period_seconds, is_inter)
        seconds = collected - start, mixed - collected
        await self._keep(period, Finished(worked, period, answers, used, *seconds, ended))
        await self._wait_for_disk()

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
            await self._keep(self.period)
            await self._wait_for_disk(0)
        for peer, id_ in self.links.agreement.open:
            self.node.tell(facts.Unsettled(peer=peer, key=id_[:2], ballot=id_.ballot))

    def _say_nobody(self, period: int) -> None:
        """Nobody takes part here: once until somebody does again."""
        if not self.cluster.sessions:
            self.phase = "no-clients"
        if self._has_participants:
            self._has_participants = False
            silent = sorted(self.cluster.sessions)
            self.node.tell(facts.NoClients(period=period, silent=tuple(silent)))

    # What clients give.

    async def _take(self, period: int, uploads: dict[str, Upload]) -> dict[str, int]:
        """Eq. (3) over those who took part, and what the server makes of it; by client, the period
        whose work it had.
        """
        source, begun = self.cluster.down.last
        uploads = await self._let_in(period, uploads, begun)
        scale, made = self._weigh(period, uploads)
        if not uploads:
            return {}
        try:
            move = await self.averaging.move(uploads, begun, scale, period, made)
            async with self._moving:
                before = await self._add(Change.towards(source, begun, scale), self.model)
                after = await self._add(move, before)
                self.model = await self.server_step.take(before, after)
                await self.hearing.moved(before, self.model)
        except NotFinite:
            for name in uploads:
                self.cluster.refuse(name, Refused("not-finite", "the mean is not finite"))
            return {}
        self._unmoved = self.model
        self.steps |= {name: made[name] + upload.steps for name, upload in uploads.items()}
        answers = {name: upload.period for name, upload in uploads.items()}
        if self.drift is not None:
            await self.drift.averaged(before, after, period, answers, uploads)
        return answers

    async def _let_in(
        self, period: int, uploads: Mapping[str, Upload], begun: Vector
    ) -> dict[str, Upload]:
        """Those that count, in the order of the file; the others are told why not.

        A client that had begun with an earlier model gives the same update to the model of now.
        """
        here: dict[str, Upload] = {}
        for name in sorted(uploads, key=self.topology.at(period).order.__getitem__):
            since = partial(uploads[name].since, begun, self.node.folder)
            try:
                here[name] = await offload(begun.is_large, since)
            except NotFinite:
                self.cluster.refuse(name, Refused("not-finite", "too far from the model of now"))
        for name, reason in self.averaging.too_large(here, begun, period).items():
            del here[name]
            self.cluster.refuse(name, Refused("norm", reason))
        self.metrics.update_norm.set(self.averaging.usual)
        return here

    # What links give.

    async def current(self) -> Vector:
        """The model with all that links have given."""
        async with self._moving:
            return await self._given()

    async def move(self, change: Change) -> Vector:
        """Add what links give in an exchange that waited for them."""
        async with self._moving:
            self.model = await self._add(change, self.model)
            return self.model

    async def _given(self) -> Vector:
        """The model with what links have given since; by whoever holds `_moving`."""
        owed = self.links.agreement.owed
        while owed:
            # They stay owed until the model has them: a checkpoint has one or the other.
            taken = list(owed)
            total = reduce(add, (each.change for each in taken))
            before, self.model = self.model, await self._add(total, self.model)
            del owed[: len(taken)]
            for each in taken:
                if each.is_late:
                    self.node.tell(facts.Repaired(peer=each.peer))
            if self.deployment.audit:
                peers, moved = [each.peer for each in taken], total.probe()
                start, end = probe(before), probe(self.model)
                self.node.tell(facts.Given(peers=peers, moved=moved, before=start, after=end))
        return self.model

    async def _add(self, change: Change, model: Vector) -> Vector:
        return await offload(model.is_large, lambda: change.applied(model, self.node.folder))

    # What is saved.

    async def _keep(self, period: int, finished: Finished | None = None) -> None:
        """Go on from the model with all that links have given until now."""
        async with self._moving:
            model = await self._given()
            if self.drift is not None:
                worked = self.period if finished is None else finished.worked
                await self.drift.mixed(self._unmoved, model, worked)
            self._go_on(max(period, self.period), finished)

    def _go_on(self, period: int, finished: Finished | None = None) -> None:
        """Go on from the model; what the links remember at this moment is saved with it."""
        self.period = period
        self._kept = self._unmoved = self.model
        changes: list[Change] = []
        agreement = dump(self.links.agreement, changes)
        self.links.is_unsaved = False
        notes, rows = self._notes(), {**self.server_step.rows, **self.averaging.rows}
        rows |= self.hearing.rows
        if self.drift is not None:
            notes["correction"] = self.drift.notes
            rows |= self.drift.rows
        if finished is not None:
            self._has_participants |= bool(finished.answers)
            self.on_period(finished.worked, period, finished.order)
        checkpoint = EdgeCheckpoint(period, self.model, agreement, changes, notes, rows)
        self.saver.save(checkpoint, finished)

    def _is_saved(self, checkpoint: EdgeCheckpoint, finished: list[Finished]) -> None:
        self.links.saved(checkpoint.done, self.saver.number)
        for period in finished:
            self.cluster.acknowledge(period.answers)
            self._note(period)
        self.on_saved()

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

    async def _wait_for_disk(self, most: int | None = None) -> None:
        """Pause until no more periods than `most` are not on the disk.

        The neighbours leave this edge out until it comes to an exchange again.
        """
        soon = asyncio.get_running_loop().time() + PAUSE_SECONDS
        if await self.signal.until(lambda: self.saver.keeps_up(most), lambda: soon):
            return
        phase, self.phase = self.phase, "paused"
        self.links.pause(True)
        start = asyncio.get_running_loop().time()
        is_slow = not self.saver.problem
        if is_slow:
            self.node.tell(facts.DiskSlow(periods=len(self.saver.unsaved)))
        await self.signal.until(lambda: self.saver.keeps_up(most))
        self.phase = phase
        if is_slow:
            seconds = asyncio.get_running_loop().time() - start
            self.node.tell(facts.DiskCaughtUp(seconds=round(seconds, 3)))
