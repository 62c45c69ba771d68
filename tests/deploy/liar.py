"""An edge that speaks the protocol and says what no honest one would, on the network in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from twin import Door
from twin_world import SIZE, TwinWorld
from virtual import NODE

from sdfeel.algorithm.methods.attacks import Attacks
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.wire import frames
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
        given["settings"] = theirs.settings
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


class Silent:
    """What the liar does on each of its streams, once it has announced the same as the others.

    how   "nothing": no model · "model": its model, and no vote or decision · "other": a model of
          another part of the network · "refuses": at once · "half": its part in every second
          exchange, as far as its model · "flaps": ends its stream
    """

    def __init__(self, how: str, edge: str, neighbours: list[str]) -> None:
        self.how, self.edge, self.neighbours = how, edge, neighbours

    async def __call__(self, stream: Any, peer: str) -> None:
        state = v1.LinkState(edge=self.edge, number=1, up=self.neighbours, done=1)
        await stream.write(v1.LinkMessage(state=state))
        announced = (0, "")
        while True:
            await asyncio.sleep(0.002)
            told = [m.announce for m in stream.told if m.WhichOneof("body") == "announce"]
            if not told or (told[-1].period, told[-1].view) == announced:
                continue
            announced = told[-1].period, told[-1].view
            await stream.write(v1.LinkMessage(announce=told[-1]))
            await self._act(stream, *announced)
            progress = v1.Progress(done=announced[0] - 1)
            await stream.write(v1.LinkMessage(progress=progress))

    async def _act(self, stream: Any, period: int, view: str) -> None:
        if self.how == "flaps":
            await asyncio.sleep(0.001)
            stream.close("gone")
        elif self.how == "refuses":
            refuse = v1.Decision(period=period, word=v1.Word.REFUSE, reason="no")
            await stream.write(v1.LinkMessage(decision=refuse))
        elif self.how in ("model", "other") or (self.how == "half" and period % 2):
            vector = as_vector(np.zeros(SIZE))
            shown = view if self.how != "other" else "another"
            for stage in (v1.Stage.UP, v1.Stage.SWAP, v1.Stage.DOWN):
                header = frames.header(vector, period, view=shown, stage=stage)
                await stream.write(v1.LinkMessage(model=header))


class Attacker:
    """Does its part of every exchange, and tells each neighbour what an attack of a run tells.

    It knows the models of all others, and says that any bound is fine with it. Its own model is
    the mean of the honest.
    """

    def __init__(self, world: TwinWorld, attacks: Attacks) -> None:
        self.world, self.attacks = world, attacks
        members = world.topology.at(0)
        self.averager, self.edges = members.averager, members.edges
        self.last: np.ndarray | None = None
        self.told = 0

    def model_for(self, peer: str) -> np.ndarray:
        honest = [self.world.edges[name].model.array() for name in self.edges[:-1]]
        models = np.stack([*honest, np.mean(honest, axis=0)]).astype(np.float64)
        last = models if self.last is None else self.last
        sender, receiver = len(self.edges) - 1, self.edges.index(peer)
        lie = self.attacks.tell(models, sender, receiver, {"last": last}, self.averager)
        if receiver == 0:
            self.last = models
        return np.clip(lie, -1e6, 1e6)

    async def __call__(self, stream: Any, peer: str) -> None:
        answered, checkpoint = 0, 1
        while True:
            await asyncio.sleep(0.001)
            for message in list(stream.told):
                about, word = message.model, message.decision
                if message.HasField("model") and about.ballot > answered:
                    answered, checkpoint = about.ballot, checkpoint + 1
                    await self._answer(stream, about, as_vector(self.model_for(peer)), checkpoint)
                elif message.HasField("decision") and word.word == v1.Word.COMMIT:
                    stream.told.remove(message)
                    self.told += 1
                    progress = v1.Progress(done=word.period, checkpoint=checkpoint + 1)
                    await stream.write(v1.LinkMessage(progress=progress))

    async def _answer(self, stream: Any, about: Any, lie: Any, checkpoint: int) -> None:
        header = frames.header(lie, about.period, exchange=about.exchange, bound=1e30)
        await stream.write(v1.LinkMessage(model=header))
        promise = v1.Decision(
            period=about.period,
            exchange=about.exchange,
            ballot=about.ballot,
            word=v1.Word.PREPARED,
            checkpoint=checkpoint,
            sha256=lie.sha256,
        )
        await stream.write(v1.LinkMessage(decision=promise))
