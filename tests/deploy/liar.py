"""An edge that speaks the protocol and says what no honest one would, on the network in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from twin import Door
from twin_world import TwinWorld
from virtual import NODE

from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.wire.transport import Call

Script = Callable[[Any, str], Awaitable[None]]


class Liar:
    """Takes the place of the last edge in the file, which everybody dials."""

    def __init__(self, world: TwinWorld, script: Script, **hello: Any) -> None:
        self.world, self.script, self.hello = world, script, hello
        self.name = world.topology.at(0).edges[-1]

    async def listen(self) -> None:
        token = NODE.set(self.name)
        door = Door(self.world.net, "edge", self.name)
        await door.listen(dict.fromkeys(Call, self._link), self._link)
        NODE.reset(token)

    async def _link(self, stream: Any) -> None:
        theirs = (await stream.read()).hello
        given = {"protocol": PROTOCOL, "name": self.name, "deployment": theirs.deployment}
        hello = v1.Hello(**{**given, "incarnation": 1, "done": 1, **self.hello})
        await stream.write(v1.LinkMessage(hello=hello))
        stream.told = []  # for scripts that answer
        reading = asyncio.ensure_future(self._read(stream))
        try:
            await self.script(stream, theirs.name)
            await reading
        finally:
            reading.cancel()

    async def _read(self, stream: Any) -> None:
        while (message := await stream.read()) is not None:
            stream.told.append(message)
            del stream.told[:-64]
