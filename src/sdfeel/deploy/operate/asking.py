"""What an operator needs to ask edges, and their models if they are elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.files import ModelFile
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.trust.provision import OPERATOR
from sdfeel.deploy.trust.shared_settings import SharedSettings, check_done
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.grpc_transport import GrpcTransport
from sdfeel.deploy.wire.transport import Call, Stream, StreamLost, Transport
from sdfeel.errors import InputError

__all__ = ["Answer", "ask_for_models", "operator", "printable"]

LONGEST = 300  # characters of what an edge says


def operator(deployment: Deployment) -> Credentials:
    """What an operator calls with; InputError if it is missing or has expired."""
    credentials = Credentials(deployment, "operator", OPERATOR)
    if credentials.has_expired:
        remedy = f"has expired; `sdfeel provision node FILE {OPERATOR}` renews it"
        raise InputError("certificate", f"operator/{OPERATOR}", remedy)
    return credentials


def printable(text: str) -> str:
    """Without control characters, which could do anything to a terminal, and not too long."""
    shown = "".join(c if c.isprintable() else "?" for c in text[: LONGEST + 1])
    return shown if len(shown) <= LONGEST else shown[:LONGEST] + "..."


@dataclass(frozen=True)
class Answer:
    """An edge's model and its period, or why there is none."""

    period: int = 0
    model: Vector | None = None
    problem: str = ""


async def ask_for_models(
    topology: Topology,
    first: ModelFile,
    edges: list[str],
    timeout: float,
    transport: Transport | None = None,
) -> dict[str, Answer]:
    """Of all these edges at once.

    timeout  seconds in which an edge must have said its next word: large models take longer
    """
    try:
        credentials = operator(topology.deployment)
    except InputError as problem:  # nobody can be asked; there may be something here
        return dict.fromkeys(edges, Answer(problem=str(problem)))
    asker = _Asker(topology, first, timeout, credentials)
    door = transport or GrpcTransport(topology.deployment, credentials)
    answers = await asyncio.gather(*(asker.ask(door, edge) for edge in edges))
    return dict(zip(edges, answers, strict=True))


@dataclass(frozen=True)
class _Asker:
    topology: Topology
    first: ModelFile
    timeout: float
    credentials: Credentials

    async def ask(self, door: Transport, edge: str) -> Answer:
        stream: Stream | None = None
        try:
            stream = await door.dial(edge, Call.MODEL)
            await self._greet(stream, edge)
            return await self._receive(stream, edge)
        except (StreamLost, Refused) as problem:
            # What is behind an UNAVAILABLE stands at the end of gRPC's sentence.
            return Answer(problem=printable(problem.reason.rpartition("last error: ")[2]))
        except TimeoutError:
            return Answer(problem=f"no answer in {self.timeout:g} s")
        finally:
            if stream is not None:
                stream.close()
                await stream.wait_closed()

    async def _greet(self, stream: Stream, edge: str) -> None:
        """An edge that is of another mind about the model or the network refuses, by field."""
        nonce = self.credentials.challenge()
        common = SharedSettings.of_edges(self.topology, self.first.vector.sha256)
        hello = v1.Hello(
            protocol=PROTOCOL,
            name=self.credentials.name,
            deployment=self.topology.deployment.digest,
            settings=common.tell(),
            nonce=nonce,
        )
        async with asyncio.timeout(self.timeout):
            await stream.write(v1.LinkMessage(hello=hello))
        answer = await self._next(stream, "hello")
        self.credentials.check_edge(edge, answer.hello, nonce)
        common.check(answer.hello)

    async def _receive(self, stream: Stream, edge: str) -> Answer:
        most = self.topology.deployment.limits.magnitude
        announced = (await self._next(stream, "model")).model
        check_done(announced.period, self.topology.plan(edge))
        incoming = frames.Incoming(announced, self.first.layout.size, most)
        model = incoming.begin()
        while model is None:
            model = incoming.feed((await self._next(stream, "chunk")).chunk)
        return Answer(announced.period, model)

    async def _next(self, stream: Stream, kind: str) -> v1.LinkMessage:
        async with asyncio.timeout(self.timeout):
            message: v1.LinkMessage | None = await stream.read()
        if message is None or message.WhichOneof("body") != kind:
            raise Refused("protocol", f"no {kind} where one was due")
        return message
