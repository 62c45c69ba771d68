"""The clients of an edge: their standing streams, their work, and what they send back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sdfeel.deploy.cluster.averaging import Upload
from sdfeel.deploy.cluster.downlink import Downlink
from sdfeel.deploy.cluster.session import Session
from sdfeel.deploy.facts import facts
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.node import Node
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.identity import Identity
from sdfeel.deploy.waiting import UsualTimes, end
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.packing import PACKINGS
from sdfeel.deploy.wire.transport import Stream, StreamLost

__all__ = ["Cluster", "Tasks"]

Tasks = Callable[[str], v1.Task]  # what a client is asked to do
Beside = Callable[[v1.Task, str], Sequence[tuple[v1.FromEdge, Vector]]]  # what goes before it


class Cluster:
    """Collects the uploads of one period after the other."""

    def __init__(self, node: Node, elsewhere: Mapping[str, int]) -> None:
        self.node, self.topology = node, node.topology
        self.home = {c.name for c in node.deployment.clients if c.edge == node.name}
        self.allowed = node.topology.allowed(node.name)
        self.sessions: dict[str, Session] = {}
        # Own clients are waited for until they come or a first deadline passes.
        self.awaited = set(self.home)
        self.period = 0
        self.is_open = False
        self.finished = False
        self.uploads: dict[str, Upload] = {}
        self.failed: set[str] = set()
        self.on_upload: Callable[[str, v1.ModelHeader], None] = lambda *_: None
        self.beside: Beside = lambda _task, _client: ()
        self.down = Downlink(node.topology, node.name, node.folder)
        self._work: tuple[Tasks, Vector] | None = None
        self.times = UsualTimes(node.deployment.deadlines.round)
        self._takes_late = False
        self._between: dict[str, Upload] = {}  # late ones that came when no period was open
        self._elsewhere = elsewhere
        self._attended: dict[str, int] = {}
        self._guests: set[str] = set()

    # The edge's side: one period.

    async def collect(self, is_over: Callable[[], bool]) -> bool:
        """Wait for everybody who usually answers; False if somebody has not in time.

        Ends early when `is_over()` holds.
        """
        start = asyncio.get_running_loop().time()

        def deadline() -> float:
            # The first work of a client may take it long: it loads its data and its packages.
            new = [name for name in self._expected() if not self.times.knows(name)]
            return start + (self.times.deadline if new else self.times.limit)

        return await self.node.signal.until(lambda: is_over() or self.everybody_answered, deadline)

    async def news(self, is_over: Callable[[], bool]) -> None:
        """Wait, however long it takes, for the first client that comes or answers."""
        was_empty = self.is_empty
        await self.node.signal.until(
            lambda: is_over() or self.has_answers or self.is_empty != was_empty
        )

    def hand_out(self, period: int, model: Vector, task: Tasks, takes_late: bool = False) -> None:
        """Give work to everybody who is there or comes until it is closed; `task` of a client.

        takes_late  a client may finish the work of an earlier period, and is not disturbed: its
                    update counts in the period in which it comes
        """
        self.period, self.is_open, self._takes_late = period, True, takes_late
        self.uploads, self.failed = self._between, set()
        self._between = {}
        self._work = (task, model)
        for name, session in self.sessions.items():
            is_busy = session.given is not None and takes_late
            if name not in self.uploads and not is_busy:
                self._give(session, task(name), model)

    def _give(self, session: Session, task: v1.Task, model: Vector) -> None:
        session.give(task, model, self.down.change, self.beside(task, session.name))

    def close(self, complete: bool) -> dict[str, Upload]:
        """End the period and return its uploads; unless `complete`, note who is late."""
        self.is_open = False
        if not complete:
            missing = sorted(self._expected() - set(self.uploads))
            self.awaited.clear()
            for name in missing:
                self.times.missed(name)
            self.node.tell(facts.Deadline(period=self.period, missing=missing))
        return self.uploads

    def _expected(self) -> set[str]:
        """Return the clients to wait for: those that usually answer, and those that must come."""
        here = {name for name in self.sessions if self.times.is_waited_for(name)}
        return here | self.awaited

    @property
    def has_workers(self) -> bool:
        """Whether somebody is here who usually answers."""
        return any(self.times.is_waited_for(name) for name in self.sessions)

    @property
    def everybody_answered(self) -> bool:
        expected = self._expected() or set(self.sessions)
        return bool(expected) and expected <= set(self.uploads) | self.failed

    @property
    def has_answers(self) -> bool:
        """Whether a client has answered in this period, well or not."""
        return bool(self.uploads) or bool(self.failed)

    @property
    def is_empty(self) -> bool:
        return not self.sessions and not self.awaited

    def acknowledge(self, answers: Mapping[str, int]) -> None:
        """Tell clients, by the period whose work they did, that it is in a model on the disk."""
        for name, period in answers.items():
            if name in self.sessions:
                self.sessions[name].receipt(period, v1.Verdict.ACCEPTED)

    def finish(self, period: int) -> None:
        """Tells everybody, also those who come later, that training is over."""
        self.finished = True
        for session in self.sessions.values():
            session.tell(v1.FromEdge(finish=v1.Finish(period=period)))

    def attending(self) -> dict[str, int]:
        """What other edges must know: guests, and own clients that are guests elsewhere, with the
        last period in which they took part here.
        """
        doubled = [name for name in self._elsewhere if name in self._attended]
        return {name: self._attended.get(name, 0) for name in sorted({*self._guests, *doubled})}

    def drop_doubled(self) -> None:
        """Who took part at home in this period is not counted here as well."""
        for name in [name for name in self._elsewhere if name in self.uploads]:
            is_guest = name not in self.home
            if is_guest and self.is_open and self._elsewhere[name] >= self.period:
                del self.uploads[name]
                self.refuse(name, Refused("elsewhere", f"{name} is at home as well"))

    # The clients' side: one stream.

    def greet(self, hello: v1.Hello, identity: Identity | None) -> None:
        """Checks a client's first message. Raises Refused."""
        name = hello.name
        if identity is not None and (identity.role, identity.name) != ("client", name):
            raise Refused("role", f"{identity.role}/{identity.name} calls as client/{name}")
        if name not in self.allowed:
            raise Refused("not-allowed", f"client {name!r} is not on this edge's list")
        if hello.samples != self.topology.samples(name):
            raise Refused("samples", f"{hello.samples} samples, not as provisioned")
        if hello.values != self.node.size:
            raise Refused("shape", f"a model of {hello.values} values, this is {self.node.size}")
        if name not in self.sessions and len(self.sessions) >= self._limit:
            raise Refused("limit", f"{self._limit} clients are connected already")
        self._check_namesake(hello)

    def _check_namesake(self, hello: v1.Hello) -> None:
        """A process that dials again takes its own place; nobody takes another process's, which
        the transport ends when it has been silent for too long.
        """
        there = self.sessions.get(hello.name)
        if there is not None and there.process != hello.incarnation:
            name = hello.name
            raise Refused("twice", f"another process with the name {name!r} is attached")

    @property
    def _limit(self) -> int:
        return self.topology.deployment.limits.connections

    async def serve(self, hello: v1.Hello, stream: Stream) -> None:
        """Reads a client's stream to its end, which means that the client has gone."""
        self._check_namesake(hello)  # again: one may have come while the answer was written
        session, name = Session(hello, stream, self.node.metrics), hello.name
        before = self.sessions.get(name)
        self.sessions[name] = session
        if before is not None:
            reason = "the same process dialled again"
            self.node.tell(facts.ClientReplaced(client=name, reason=reason))
            before.stream.close("a newer stream took its place")
        self.awaited.discard(name)
        if name not in self.home:
            self._guests.add(name)
        self.node.tell(facts.ClientUp(client=name, guest=name not in self.home))
        if self.finished:
            session.tell(v1.FromEdge(finish=v1.Finish(period=self.period)))
        elif self.is_open and self._work is not None and name not in self.uploads:
            task, model = self._work
            self._give(session, task(name), model)
        self._changed()
        pump = asyncio.ensure_future(session.outbox.pump())
        try:
            await self._read(session)
        except StreamLost:
            pass  # client-down says it
        finally:
            if self.sessions.get(name) is session:
                del self.sessions[name]
                self._guests.discard(name)
                reason = session.outbox.problem
                self.node.tell(facts.ClientDown(client=name, reason=reason))
            self._changed()
            await end(pump)

    def _changed(self) -> None:
        self.node.metrics.clients.set(len(self.sessions))
        self.node.signal.notify()

    async def _read(self, session: Session) -> None:
        incoming: frames.Incoming | None = None
        most_steps = self.topology.deployment.most_steps
        try:
            while (message := await session.stream.read()) is not None:
                kind = message.WhichOneof("body")
                try:
                    vector = None
                    if kind == "model":
                        if incoming is not None:
                            incoming.abandon()
                            incoming = None
                            raise Refused("truncated", "a new model before the last was whole")
                        incoming = self._open(session, message.model)
                        vector = incoming.begin() if incoming is not None else None
                    elif kind == "chunk" and incoming is not None:
                        vector = incoming.feed(message.chunk)
                    self.node.metrics.bytes.labels("clients", "in").inc(message.ByteSize())
                    if vector is not None and incoming is not None:
                        announced = incoming.announced
                        upload = Upload(
                            vector,
                            incoming.moved,
                            announced.steps if most_steps else self.topology.tau1,
                            epoch=announced.epoch,
                            learned=announced.learned,
                        )
                        incoming = None
                        self._accept(session, announced, upload)
                except Refused as refusal:
                    self.refuse(session.name, refusal)
                    incoming = None
        finally:
            if incoming is not None:
                incoming.abandon()
                self._count(session.name, Refused("truncated", "the stream ended within a model"))

    def _open(self, session: Session, announced: v1.ModelHeader) -> frames.Incoming | None:
        given, period = session.given, announced.period
        if period == self.period and session.name in self.uploads:
            raise Refused("replayed", f"a second model for period {period}")
        if given is None or period != given.period or not self._is_wanted(period):
            if period > self.period:
                raise Refused("period", f"period {period}, this is {self.period}")
            self._late(session, period)
            return None
        if announced.samples != self.topology.samples(session.name):
            raise Refused("samples", f"{announced.samples} samples, not as provisioned")
        steps = self.topology.deployment.most_steps
        if steps and not 1 <= announced.steps <= steps:
            raise Refused("steps", f"{announced.steps} steps, from 1 to {steps} can be")
        most = self.topology.deployment.limits.magnitude
        packing = PACKINGS.get(self.topology.deployment.codecs.up)
        return frames.Incoming(
            announced, self.node.size, most, self.node.folder, given.model, packing
        )

    def _is_wanted(self, period: int) -> bool:
        return self._takes_late or (self.is_open and period == self.period)

    def _accept(self, session: Session, announced: v1.ModelHeader, upload: Upload) -> None:
        given = session.given
        if given is None or not self._is_wanted(announced.period):
            self._late(session, announced.period)
            return
        session.given = None
        self.times.answered(session.name, asyncio.get_running_loop().time() - given.at)
        # Nobody is refused at home for what another edge says, which may lie. A guest is, also in
        # the period after that: what is said of this one may still be on its way.
        last = self._elsewhere.get(session.name, 0)
        if session.name not in self.home and last and last + 1 >= announced.period:
            where = f"has taken part in period {last} at another edge"
            raise Refused("elsewhere", f"{session.name} {where}")
        self._attended[session.name] = self.period
        upload = replace(upload, period=announced.period, begun=given.model)
        (self.uploads if self.is_open else self._between)[session.name] = upload
        if announced.period == self.period:
            self.on_upload(session.name, announced)
        else:
            late = facts.TakenLate(client=session.name, period=given.period, now=self.period)
            self.node.tell(late)
        self.node.signal.notify()

    def _late(self, session: Session, period: int) -> None:
        if session.given is not None and session.given.period == period:
            session.given = None
        self.node.tell(facts.UploadLate(client=session.name, period=period, now=self.period))
        session.receipt(period, v1.Verdict.LATE, f"period {period} is over")

    def refuse(self, name: str, refusal: Refused) -> None:
        """A bad model harms nobody else; the period does not wait for another one."""
        self._count(name, refusal)
        if name not in self.uploads:
            self.failed.add(name)
        if name in self.sessions:
            self.sessions[name].given = None
            self.sessions[name].receipt(self.period, v1.Verdict.REFUSED, refusal.reason)
        self.node.signal.notify()

    def _count(self, name: str, refusal: Refused) -> None:
        kind, reason, period = refusal.kind, refusal.reason, self.period
        self.node.tell(facts.UploadRefused(kind=kind, reason=reason, client=name, period=period))
