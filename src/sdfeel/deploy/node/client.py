"""The client: dials out only, trains on its private data, sends nothing but models."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
import numpy as np
from numpy.typing import NDArray

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.link import rpc
from sdfeel.deploy.link.dialler import open_channel
from sdfeel.deploy.model import wire
from sdfeel.deploy.model.vectors import Vector, as_vector
from sdfeel.deploy.observe.logs import Log, Sink
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.trust.agreement import Agreement
from sdfeel.deploy.trust.identity import Credentials, Identity, check
from sdfeel.deploy.trust.lifetime import Lifetime
from sdfeel.errors import InputError

__all__ = ["ClientProgram", "Trained", "Trainer"]

Model = NDArray[np.float32]
LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Trained:
    """A model with what was measured on the way: `batch_loss`, `train_loss`, `train_accuracy`."""

    model: Model
    measures: Mapping[str, float] = field(default_factory=dict)


class Trainer(Protocol):
    """What a client does between two uploads, on data that only it sees."""

    @property
    def samples(self) -> int:
        """|S_i|."""

    @property
    def size(self) -> int:
        """Number of values of the model."""

    def train(self, model: Model, first: int, steps: int) -> Model | Trained:
        """Local updates k = first, ..., first + steps - 1 of eq. (2), from `model`."""


class ClientProgram:
    """One client of a deployment. `run` returns when its edge says that training is over."""

    def __init__(
        self, deployment: Deployment, name: str, trainer: Trainer, log: Sink | None = None
    ) -> None:
        self.deployment, self.name, self.trainer = deployment, name, trainer
        self.me = deployment.client(name)
        if trainer.samples != self.me.samples:
            raise InputError(
                f"clients.{name}.samples",
                self.me.samples,
                f"the data has {trainer.samples}; correct the deployment file on all nodes",
            )
        self.credentials = Credentials(deployment, "client", name)
        self.log = Log(name, log)
        self.lifetime = Lifetime(self.credentials, self.log)
        self._incarnation = time.time_ns()
        self._answered_by: Identity | None = None
        self.edge: str | None = None
        self.accepted: list[int] = []
        self._work: tuple[v1.Task, Vector] | None = None
        self._training: asyncio.Task[Model | Trained] | None = None
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Home first, else the fallbacks in order; again and again until the end."""
        while True:
            for edge in (self.me.edge, *self.me.fallbacks):
                outcome = await self._attend(edge)
                if outcome == "finished":
                    self.log("finished", edge=edge)
                    return
                if outcome in ("lost", "renew", "home"):
                    break
            if outcome != "renew":
                await asyncio.sleep(self.deployment.deadlines.retry)

    async def _attend(self, edge: str) -> str:
        """One stream to one edge, from hello to its end; how it ended."""
        self.lifetime.look()
        if self.credentials.has_expired:
            return "unreachable"
        channel = open_channel(self.deployment, self.credentials, edge)
        call: Any = None
        try:
            call = rpc.call_work(channel)
            hello = v1.Hello(
                protocol=wire.PROTOCOL,
                name=self.name,
                deployment=self.deployment.digest,
                samples=self.trainer.samples,
                settings=Agreement.of_clients(self.deployment).tell(),
                incarnation=self._incarnation,
                nonce=self.credentials.challenge(),
            )
            # Not wait_for: before Python 3.12 it may swallow the end of this very program.
            async with asyncio.timeout(self.deployment.deadlines.ping):
                await call.write(v1.FromClient(hello=hello))
                answer = await call.read()
            if answer is grpc.aio.EOF:
                self.log.again("edge-refused", edge=edge, reason=await call.details())
                return "refused"
            found = self.credentials.check_edge(edge, answer.hello, hello.nonce)
            self.edge, self._answered_by = edge, found
            self.log("connected", edge=edge)
            return await self._take_part(call, edge)
        except grpc.aio.AioRpcError as problem:
            kind = "edge-lost" if self.edge == edge else "edge-unreachable"
            if problem.code() == grpc.StatusCode.PERMISSION_DENIED:
                kind = "edge-refused"
            tell = self.log if kind == "edge-lost" else self.log.again
            tell(kind, edge=edge, reason=f"{problem.code().name}: {problem.details()}")
            return "lost" if self.edge == edge else "unreachable"
        except TimeoutError:
            self.log.again("edge-unreachable", edge=edge, reason="no answer")
            return "unreachable"
        except wire.Refused as refusal:
            self.log.again("edge-distrusted", edge=edge, kind=refusal.kind, reason=refusal.reason)
            return "refused"
        finally:
            if call is not None:
                call.cancel()
            await channel.close()
            self.edge = None

    async def _take_part(self, call: Any, edge: str) -> str:
        self._work = None
        self._wake.clear()
        tasks = [
            asyncio.create_task(self._read(call, edge)),
            asyncio.create_task(self._serve_work(call, edge)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in ended:
            problem = task.exception()
            # A write to a stream that has just ended: the stream's end is what counts.
            if problem is not None and not isinstance(problem, asyncio.InvalidStateError):
                raise problem
        found = [task.result() for task in ended if task.exception() is None]
        return found[0] if found else "lost"

    async def _read(self, call: Any, edge: str) -> str:
        """What the edge says; the newest work replaces older."""
        incoming: wire.Incoming | None = None
        task: v1.Task | None = None
        while (message := await call.read()) is not grpc.aio.EOF:
            kind = message.WhichOneof("body")
            try:
                if kind == "task":
                    task = message.task
                    incoming = wire.Incoming(message.task.model, self.trainer.size)
                elif kind == "chunk" and incoming is not None and task is not None:
                    model = incoming.feed(message.chunk)
                    if model is not None:
                        self._work, incoming = (task, model), None
                        self._wake.set()
                elif kind == "receipt":
                    self._note(message.receipt)
                elif kind == "finish":
                    return "finished"
            except wire.Refused as refusal:
                incoming = None
                self.log("refused", edge=edge, kind=refusal.kind, reason=refusal.reason)
        code = await call.code()
        if code != grpc.StatusCode.OK:
            self.log("edge-lost", edge=edge, reason=f"{code.name}: {await call.details()}")
        else:
            self.log("edge-lost", edge=edge, reason="the stream ended")
        return "lost"

    def _note(self, receipt: v1.Receipt) -> None:
        if receipt.verdict == v1.Verdict.ACCEPTED:
            self.accepted.append(receipt.period)
            self.log("accepted", period=receipt.period)
        else:
            verdict = "late" if receipt.verdict == v1.Verdict.LATE else "model-refused"
            self.log(verdict, period=receipt.period, reason=receipt.reason)
        self._wake.set()

    async def _serve_work(self, call: Any, edge: str) -> str:
        stamp = self.credentials.stamp
        loop = asyncio.get_running_loop()
        look_home = loop.time() + self.deployment.deadlines.home
        while True:
            # Also when nobody says anything: certificates and lists may have changed.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            self.lifetime.look()
            if self._answered_by is not None:
                check(self._answered_by, self.credentials)
            if self.credentials.stamp != stamp:
                self.log("renewed", edge=edge)
                return "renew"
            if edge != self.me.edge and loop.time() > look_home:
                look_home = loop.time() + self.deployment.deadlines.home
                if await self._home_is_back():
                    self.log("going-home", edge=edge)
                    return "home"
            if self._work is not None:
                task, model = self._work
                self._work = None
                start = loop.time()
                trained = await self._train(task, model)
                seconds = loop.time() - start
                if self._work is None:  # else the period is over: what we have is late
                    await self._upload(call, task, trained)
                    took = round(seconds, 6)
                    self.log("uploaded", period=task.period, trained=took, **trained.measures)

    async def _train(self, task: v1.Task, model: Vector) -> Trained:
        if self._training is not None:  # of a stream that was lost: a thread cannot be stopped
            with contextlib.suppress(Exception):
                await self._training
        self._training = asyncio.create_task(
            asyncio.to_thread(self.trainer.train, model.array(), task.first, task.steps)
        )
        found = await asyncio.shield(self._training)
        return found if isinstance(found, Trained) else Trained(found)

    async def _upload(self, call: Any, task: v1.Task, trained: Trained) -> None:
        vector = as_vector(trained.model)
        measures = [v1.Measure(name=name, value=value) for name, value in trained.measures.items()]
        announced = wire.header(
            vector, task.period, samples=self.trainer.samples, measures=measures
        )
        await call.write(v1.FromClient(model=announced))
        async for chunk in wire.chunks(vector):
            await call.write(v1.FromClient(chunk=chunk))

    async def _home_is_back(self) -> bool:
        channel = open_channel(self.deployment, self.credentials, self.me.edge)
        try:
            async with asyncio.timeout(self.deployment.deadlines.ping):
                await channel.channel_ready()
        except TimeoutError:
            return False
        finally:
            await channel.close()
        return True
