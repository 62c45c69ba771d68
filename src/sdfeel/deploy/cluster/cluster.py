"""The clients of an edge: their standing streams, their work, and what they send back."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Mapping, Sequence

from sdfeel.deploy.cluster.averaging import Upload
from sdfeel.deploy.cluster.reception import Arrival, Reception
from sdfeel.deploy.cluster.session import Downlink, Session
from sdfeel.deploy.facts import facts
from sdfeel.deploy.members import Members
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.node import Node
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.identity import Identity
from sdfeel.deploy.waiting import UsualTimes, end
from sdfeel.deploy.wire.transport import Stream, StreamLost

__all__ = ["Cluster", "Tasks"]

Tasks = Callable[[str], v1.Task]  # what a client is asked to do
Beside = Callable[[v1.Task, str], Sequence[tuple[v1.FromEdge, Vector]]]  # what goes before it


class Cluster:
    """Collects the uploads of one period after the other."""

    def __init__(self, node: Node, elsewhere: Mapping[str, int]) -> None:
        self.node, self.topology = node, node.topology
        self.sessions: dict[str, Session] = {}
        # Own clients are waited for until they come or a first deadline passes.
        self.period = 0
        self.awaited = set(self.home)
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
        self.elsewhere = elsewhere
        self._attended: dict[str, int] = {}
        self._guests: set[str] = set()

    @property
    def members(self) -> Members:
        """Of the period that is under way."""
        return self.topology.at(self.period)

    @property
    def home(self) -> frozenset[str]:
        """The clients of this edge's own cluster."""
        return self.members.home(self.node.name)

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
        doubled = [name for name in self.elsewhere if name in self._attended]
        return {name: self._attended.get(name, 0) for name in sorted({*self._guests, *doubled})}

    def drop_doubled(self) -> None:
        """Who took part at home in this period is not counted here as well."""
        for name in [name for name in self.elsewhere if name in self.uploads]:
            is_guest = name not in self.home
            if is_guest and self.is_open and self.elsewhere[name] >= self.period:
                del self.uploads[name]
                self.refuse(name, Refused("elsewhere", f"{name} is at home as well"))

    # The clients' side: one stream.

    def greet(self, hello: v1.Hello, identity: Identity | None) -> None:
        """Checks a client's first message. Raises Refused."""
        name = hello.name
        if identity is not None and (identity.role, identity.name) != ("client", name):
            raise Refused("role", f"{identity.role}/{identity.name} calls as client/{name}")
        if name not in self.members.allowed(self.node.name):
            raise Refused("not-allowed", f"client {name!r} is not on this edge's list")
        if hello.samples != self.members.samples(name):
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

    async def serve(
        self, hello: v1.Hello, stream: Stream, until: datetime.datetime | None = None
    ) -> None:
        """Reads a client's stream to its end, which means that the client has gone."""
        self._check_namesake(hello)  # again: one may have come while the answer was written
        session, name = Session(hello, stream, self.node.metrics, until), hello.name
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
        reception = Reception(self, session)
        try:
            while (message := await session.stream.read()) is not None:
                await reception.take(message)
        finally:
            reception.end()

    def is_wanted(self, period: int) -> bool:
        """Whether the work of a period may still come in."""
        return self._takes_late or (self.is_open and period == self.period)

    def accept(self, arrival: Arrival, upload: Upload, seconds: float) -> None:
        """Take a model that has passed every check, `seconds` after its work was given."""
        name = arrival.client
        self.times.answered(name, seconds)
        self._attended[name] = self.period
        (self.uploads if self.is_open else self._between)[name] = upload
        if upload.period == self.period:
            self.on_upload(name, arrival.announced)
        else:
            self.node.tell(facts.TakenLate(client=name, period=upload.period, now=self.period))
        self.node.signal.notify()

    def late(self, session: Session, period: int) -> None:
        """A model came after its period: that is no fault."""
        if session.given is not None and session.given.period == period:
            session.given = None
        self.node.tell(facts.UploadLate(client=session.name, period=period, now=self.period))
        session.receipt(period, v1.Verdict.LATE, f"period {period} is over")

    def refuse(self, name: str, refusal: Refused) -> None:
        """A bad model harms nobody else; the period does not wait for another one."""
        self.count(name, refusal)
        if name not in self.uploads:
            self.failed.add(name)
        if name in self.sessions:
            self.sessions[name].given = None
            self.sessions[name].receipt(self.period, v1.Verdict.REFUSED, refusal.reason)
        self.node.signal.notify()

    def count(self, name: str, refusal: Refused) -> None:
        """Note what was refused."""
        kind, reason, period = refusal.kind, refusal.reason, self.period
        self.node.tell(facts.UploadRefused(kind=kind, reason=reason, client=name, period=period))
