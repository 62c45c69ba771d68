"""A client that speaks the protocol and sends what no honest one would."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import toy
from harness import World

from sdfeel.deploy.model.vectors import Vector, as_vector
from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.trust.shared_settings import SharedSettings
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.grpc_transport import call_stream, open_channel
from sdfeel.deploy.wire.transport import Call


class Rogue:
    """Takes a client's place at its edge with that client's certificate."""

    def __init__(self, world: World, name: str = "c0", certificate: str | None = None) -> None:
        self.deployment = world.deployment
        self.me = world.deployment.client(name)
        credentials = Credentials(world.deployment, "client", certificate or name)
        self._channel = open_channel(world.deployment, credentials, self.me.edge)

    async def __aenter__(self) -> Rogue:
        self.call = call_stream(self._channel, Call.WORK)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.call.cancel()
        await self._channel.close()

    async def hello(self, **fields: Any) -> None:
        hello: dict[str, Any] = {
            "protocol": PROTOCOL,
            "name": self.me.name,
            "deployment": self.deployment.digest,
            "samples": self.me.samples,
            "values": toy.SIZE,
            "settings": SharedSettings.of_clients(self.deployment).tell(),
        }
        await self.call.write(v1.FromClient(hello=v1.Hello(**{**hello, **fields})))

    async def task(self) -> int:
        """Says hello and waits for work; its period."""
        await self.hello()
        return (await self._wait("task")).task.period

    async def _wait(self, kind: str) -> Any:
        async with asyncio.timeout(10):
            while True:
                message = await self.call.read()
                assert hasattr(message, "WhichOneof"), "the stream ended"
                if message.WhichOneof("body") == kind:
                    return message

    async def receipt(self) -> v1.Receipt:
        return (await self._wait("receipt")).receipt

    def model(self, values: Any = None) -> Vector:
        return as_vector(np.zeros(toy.SIZE) if values is None else values)

    async def header(self, vector: Vector, period: int, **fields: Any) -> None:
        announced = frames.header(vector, period, samples=self.me.samples)
        announced.ClearField("data")  # in chunks, which can be spoiled one by one
        for field, value in fields.items():
            setattr(announced, field, value)
        await self.call.write(v1.FromClient(model=announced))

    async def chunk(self, data: bytes, offset: int = 0) -> None:
        await self.call.write(v1.FromClient(chunk=v1.Chunk(offset=offset, data=data)))

    async def upload(self, vector: Vector, period: int, **fields: Any) -> v1.Receipt:
        await self.header(vector, period, **fields)
        await self.chunk(vector.read_bytes(0, vector.size))
        return await self.receipt()
