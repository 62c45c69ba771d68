"""The client: dials out only, trains on its private data, sends nothing but models."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from sdfeel.algorithm.trainer import MeasuringTrainer, Trainer
from sdfeel.deploy.client.drift import ClientDrift
from sdfeel.deploy.client.step_budget import StepBudget
from sdfeel.deploy.client.uplink import Uplink
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.logs import Log, Sink
from sdfeel.deploy.facts.metrics import ClientMetrics
from sdfeel.deploy.facts.stream import Facts
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.pace import plans
from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.identity import Credentials, Identity, check
from sdfeel.deploy.trust.lifetime import Lifetime
from sdfeel.deploy.trust.shared_settings import SharedSettings
from sdfeel.deploy.waiting import Retry
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.grpc_transport import GrpcTransport
from sdfeel.deploy.wire.packing import Load, packing_of
from sdfeel.deploy.wire.transport import Call, Stream, StreamLost, Transport, TurnedAway
from sdfeel.errors import InputError

__all__ = ["ClientProgram"]

ATTEMPTS = 10  # to reach home at the start, before the fallbacks are asked
LOOK_SECONDS = 0.5
SENT = 64  # models whose receipt may still come
LONGEST = 1e6  # seconds of a period


@dataclass(frozen=True)
class _Trained:
    load: Load
    measures: Mapping[str, float]
    first: int
    steps: int
    seconds: float


class ClientProgram:
    """One client of a deployment. `run` returns when its edge says that training is over."""

    def __init__(
        self,
        deployment: Deployment,
        name: str,
        trainer: Trainer,
        log: Sink | None = None,
        transport: Transport | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.deployment, self.name, self.trainer = deployment, name, trainer
        self._retry = Retry(deployment.deadlines.retry, chance)
        self.me = deployment.client(name)
        if trainer.samples != self.me.samples:
            raise InputError(
                f"clients.{name}.samples",
                self.me.samples,
                f"the data has {trainer.samples}; correct the deployment file on all nodes",
            )
        self.credentials = Credentials(deployment, "client", name)
        self.transport = transport or GrpcTransport(deployment, self.credentials)
        self.log, self.metrics = Log(name, log), ClientMetrics()
        self.metrics.log_lost.set_function(lambda: self.log.unwritten)
        self.metrics.connected.set_function(lambda: self.edge is not None)
        self.tell = Facts(self.log.add, self.metrics.add).tell
        self.lifetime = Lifetime(self.credentials, self.tell, self.metrics)
        self._idle_since = 0.0  # since the last upload
        self._incarnation = secrets.randbits(62)
        self._answered_by: Identity | None = None
        self.edge: str | None = None
        self.accepted: list[int] = []
        self._sent: deque[tuple[int, int]] = deque(maxlen=SENT)  # period, last iteration
        self.budget = StepBudget(deployment.most_steps)
        self._made = 0  # iterations that are in an edge's model, without rounds
        self._uplink = Uplink(deployment, name)
        self._drift = ClientDrift.of(deployment, name, trainer)
        self._work: tuple[v1.Task, Vector] | None = None
        self._packing = packing_of(deployment.codecs.down)
        self._given: Vector | None = None  # the last model on this stream, if changes of it come
        self._given_at = 0.0
        self._training: asyncio.Task[_Trained] | None = None
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Home first, else the fallbacks in order; again and again until the end."""
        outcome = await self._come_home()
        while outcome != "finished":
            for edge in (self.me.edge, *self.me.fallbacks):
                outcome = await self._attend(edge)
                if outcome in ("finished", "lost", "renew", "home"):
                    break
            if outcome not in ("finished", "renew"):
                await self._retry.pause()
        await self.log.drain()

    async def _come_home(self) -> str:
        """At the start everybody does: an edge that is not there yet is waited for a little."""
        deadlines, loop = self.deployment.deadlines, asyncio.get_running_loop()
        end = loop.time() + min(deadlines.home, ATTEMPTS * deadlines.retry)
        while True:
            outcome = await self._attend(self.me.edge)
            if outcome != "unreachable" or loop.time() + deadlines.retry > end:
                return outcome
            await self._retry.pause()

    async def _attend(self, edge: str) -> str:
        """One stream to one edge, from hello to its end; how it ended."""
        self.lifetime.look()
        if self.credentials.has_expired:
            return "unreachable"
        stream: Stream | None = None
        try:
            stream = await self.transport.dial(edge, Call.WORK)
            hello = self._hello()
            # Not wait_for: before Python 3.12 it may swallow the end of this very program.
            async with asyncio.timeout(self.deployment.deadlines.ping):
                await stream.write(v1.FromClient(hello=hello))
                answer = await stream.read()
            if answer is None:
                raise StreamLost("the stream ended")
            identity = self.credentials.check_edge(edge, answer.hello, hello.nonce)
            self.edge, self._answered_by = edge, identity
            self.tell(facts.Connected(edge=edge))
            return await self._take_part(stream, edge)
        except TurnedAway as refusal:
            self.tell(facts.EdgeRefused(edge=edge, reason=refusal.reason))
            return "lost" if self.edge == edge else "refused"
        except StreamLost as problem:
            fact: type[facts.EdgeLost | facts.EdgeUnreachable]
            kind, fact = "unreachable", facts.EdgeUnreachable
            if self.edge == edge:
                kind, fact = "lost", facts.EdgeLost
            self.tell(fact(edge=edge, reason=problem.reason))
            return kind
        except TimeoutError:
            self.tell(facts.EdgeUnreachable(edge=edge, reason="no answer"))
            return "unreachable"
        except Refused as refusal:
            reason = refusal.reason
            self.tell(facts.EdgeDistrusted(edge=edge, kind=refusal.kind, reason=reason))
            return "refused"
        finally:
            self.edge = self._answered_by = None
            if stream is not None:
                stream.close()
                await stream.wait_closed()

    def _hello(self) -> v1.Hello:
        return v1.Hello(
            protocol=PROTOCOL,
            name=self.name,
            deployment=self.deployment.digest,
            samples=self.trainer.samples,
            values=self.trainer.size,
            settings=SharedSettings.of_clients(self.deployment).tell(),
            incarnation=self._incarnation,
            nonce=self.credentials.challenge(),
        )

    async def _take_part(self, stream: Stream, edge: str) -> str:
        self._work = self._given = None
        self._wake.clear()
        tasks = [
            asyncio.create_task(self._read(stream, edge)),
            asyncio.create_task(self._serve_work(stream, edge)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        # What the edge said last counts for more than a write to a stream that has just ended.
        return ended[0].result()

    async def _read(self, stream: Stream, edge: str) -> str:
        """What the edge says; the newest work replaces older."""
        incoming: frames.Incoming | None = None
        task: v1.Task | None = None
        row: v1.Row | None = None
        while (message := await stream.read()) is not None:
            kind = message.WhichOneof("body")
            size = len(message.task.model.data) + len(message.row.model.data)
            self.metrics.bytes.labels("in").inc(size + len(message.chunk.data))
            try:
                if kind == "task":
                    self._given_at = asyncio.get_running_loop().time()
                    task, row, incoming = message.task, None, self._open(message.task)
                    self._take(task, incoming.begin())
                elif kind == "row":
                    row, incoming = message.row, self._open_row(message.row)
                    self._take_row(row, incoming.begin())
                elif kind == "chunk" and incoming is not None and row is not None:
                    self._take_row(row, incoming.feed(message.chunk))
                elif kind == "chunk" and incoming is not None and task is not None:
                    self._take(task, incoming.feed(message.chunk))
                elif kind == "receipt":
                    self._note(message.receipt)
                elif kind == "finish":
                    self.tell(facts.TrainingOver(edge=edge))
                    return "finished"
            except Refused as refusal:
                incoming = None
                if refusal.kind == "base":  # on a new stream it gets the whole model
                    raise StreamLost(refusal.reason) from None
                reason = refusal.reason
                self.tell(facts.TaskRefused(edge=edge, kind=refusal.kind, reason=reason))
        raise StreamLost("the stream ended")

    def _open_row(self, row: v1.Row) -> frames.Incoming:
        if self._drift is None:
            raise Refused("row", "there is no correction here")
        return self._drift.open(row)

    def _take_row(self, row: v1.Row, values: Vector | None) -> None:
        if values is not None and self._drift is not None:
            self._drift.take(row, values)

    def _take(self, task: v1.Task, model: Vector | None) -> None:
        if model is not None:
            if self._drift is not None:
                self._drift.expect(task)
            self._work = (task, model)
            if self._packing is not None:
                self._given = model
            self._wake.set()

    def _open(self, task: v1.Task) -> frames.Incoming:
        """Work is as the deployment file says: how much of it is not the edge's to decide."""
        if self.deployment.most_steps:
            return self._open_turn(task)
        schedule = self.deployment.schedule
        first, last = (task.period - 1) * schedule.tau1 + 1, task.period * schedule.tau1
        if (task.first, task.steps) != (
            first,
            schedule.tau1,
        ) or not 0 < last <= schedule.iterations:
            where = f"{task.steps} steps from {task.first} in period {task.period}"
            plan = f"tau1 = {schedule.tau1}, iterations = {schedule.iterations}"
            raise Refused("task", f"{where}: not as this deployment file says ({plan})")
        return self._incoming(task.model)

    def _open_turn(self, task: v1.Task) -> frames.Incoming:
        """Without rounds an edge says how long, and its count of our steps: never more than can
        have been, and not beyond its last period.
        """
        edge = self.edge or self.me.edge
        most, last = self.deployment.most_steps, plans(self.deployment)[edge]
        is_long = not 0 < task.seconds <= LONGEST
        if is_long or task.period > last or not 0 < task.first <= most * task.period:
            where = f"{task.seconds:g} s from {task.first} in period {task.period}"
            raise Refused("task", f"{where}: not as this file says ({most} steps, {last} periods)")
        return self._incoming(task.model)

    def _incoming(self, announced: v1.ModelHeader) -> frames.Incoming:
        """The model of a task, or a change of the one that was given before."""
        most, start, packing = self.deployment.limits.magnitude, None, None
        if self._packing is not None and announced.dtype == self._packing.name:
            start, packing = self._given, self._packing
            if start is None:
                raise Refused("base", "a change, and no model before it")
        return frames.Incoming(announced, self.trainer.size, most, None, start, packing)

    def _note(self, receipt: v1.Receipt) -> None:
        """A model is accepted once, and only one that was sent."""
        if receipt.verdict != v1.Verdict.ACCEPTED:
            if receipt.verdict == v1.Verdict.LATE:
                self.budget.was(in_time=False)
                self.tell(facts.ModelLate(period=receipt.period, reason=receipt.reason))
            else:
                self.tell(facts.ModelRefused(period=receipt.period, reason=receipt.reason))
        elif sent_before := [sent for sent in self._sent if sent[0] == receipt.period]:
            self._sent.remove(sent_before[0])
            self._made = max(self._made, sent_before[0][1])
            self.budget.was(in_time=True)
            self.accepted.append(receipt.period)
            self._uplink.accepted(receipt.period)
            self.tell(facts.Accepted(period=receipt.period))
        self._wake.set()

    async def _serve_work(self, stream: Stream, edge: str) -> str:
        stamp = self.credentials.stamp
        loop = asyncio.get_running_loop()
        look_home = loop.time() + self.deployment.deadlines.home
        while True:
            # Also when nobody says anything: certificates and lists may have changed.
            with contextlib.suppress(TimeoutError):
                soon = loop.time() + LOOK_SECONDS
                is_guest = edge != self.me.edge
                async with asyncio.timeout_at(min(soon, look_home) if is_guest else soon):
                    await self._wake.wait()
            self._wake.clear()
            self.lifetime.look()
            if self._answered_by is not None:
                check(self._answered_by, self.credentials)
            if self.credentials.stamp != stamp:
                self.tell(facts.Renewed(edge=edge))
                return "renew"
            if edge != self.me.edge and loop.time() >= look_home:
                look_home = loop.time() + self.deployment.deadlines.home
                if await self.transport.is_there(self.me.edge):
                    self.tell(facts.GoingHome(edge=edge))
                    return "home"
            if self._work is not None:
                task, model = self._work
                self._work = None
                start = loop.time()
                if self._idle_since:
                    self.metrics.waiting.observe(start - self._idle_since)
                first, steps = self._extent(task, start)
                if self._drift is not None:
                    await self._idle()
                    self._drift.begin(task)
                trained = await self._train(task.period, model, first, steps)
                seconds = loop.time() - start
                self.budget.took(steps, seconds)
                if self._work is None:  # else the period is over: what we have is late
                    await self._upload(stream, task.period, trained)
                    took, measures = round(seconds, 6), trained.measures
                    self.tell(facts.Uploaded(period=task.period, trained=took, measures=measures))
                elif self.deployment.most_steps:
                    self.budget.was(in_time=False)

    def _extent(self, task: v1.Task, now: float) -> tuple[int, int]:
        """The first iteration and how many: as many as fit where the edge leaves it to us."""
        if not self.deployment.most_steps:
            return task.first, task.steps
        left = task.seconds - (now - self._given_at)
        return max(task.first, self._made + 1), self.budget.steps(task.seconds, left)

    async def _idle(self) -> None:
        if self._training is not None:  # of a stream that was lost: a thread cannot be stopped
            await asyncio.wait({self._training})  # which does not end it if we are ended

    async def _train(self, period: int, model: Vector, first: int, steps: int) -> _Trained:
        await self._idle()
        work = asyncio.to_thread(self._carry_out, period, model, first, steps)
        self._training = asyncio.create_task(work)
        return await asyncio.shield(self._training)

    def _carry_out(self, period: int, model: Vector, first: int, steps: int) -> _Trained:
        start = time.perf_counter()
        trained = self.trainer.train(model.array(), first, steps)
        seconds = time.perf_counter() - start
        measures = self.trainer.measures if isinstance(self.trainer, MeasuringTrainer) else {}
        load = self._uplink.load(period, first + steps - 1, model, trained)
        return _Trained(load, measures, first, steps, seconds)

    async def _upload(self, stream: Stream, period: int, trained: _Trained) -> None:
        load = trained.load
        measures = [v1.Measure(name=name, value=value) for name, value in trained.measures.items()]
        announced = frames.header(load, period, samples=self.trainer.samples, measures=measures)
        announced.trained = trained.seconds
        if self._drift is not None:
            announced.epoch, announced.learned = self._drift.epoch, self._drift.learned
            if self._uplink.moved is not None:
                self._drift.uploaded(period, self._uplink.moved)
        if self.deployment.most_steps:
            announced.steps = trained.steps
        self._sent.append((period, trained.first + trained.steps - 1))
        await stream.write(v1.FromClient(model=announced))
        sent = self.metrics.bytes.labels("out")
        sent.inc(len(announced.data))
        for chunk in frames.chunks(load):
            await stream.write(v1.FromClient(chunk=chunk))
            sent.inc(len(chunk.data))
        self._idle_since = asyncio.get_running_loop().time()
