"""What stands against the deployment in `soak`: proxies that cut, an edge that lies, a client that
floods. They live in a thread with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

import numpy as np

from deployment import toy
from deployment.proxy import Mode, Proxy
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.grpc_transport import GrpcTransport
from sdfeel.deploy.wire.transport import Call, StreamLost

__all__ = ["Enemies"]


class Enemies:
    """Starts them all; `cut` and `mend` are for the proxy before an edge."""

    def __init__(self, deployment: Deployment, liar: str, flooder: str) -> None:
        self._deployment, self._liar, self._flooder = deployment, liar, flooder
        self._loop = asyncio.new_event_loop()
        self._proxies: dict[str, Proxy] = {}
        self.counts = {"lies": 0, "false models": 0}
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._call(self._start())

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def cut(self, edge: str) -> None:
        self._loop.call_soon_threadsafe(self._proxies[edge].set, Mode.CUT)

    def mend(self, edge: str) -> None:
        self._loop.call_soon_threadsafe(self._proxies[edge].set, Mode.PASS)

    def stop(self) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _start(self) -> None:
        for edge in self._deployment.edges:
            outer, inner = (int(a.rpartition(":")[2]) for a in (edge.address, edge.listen))
            self._proxies[edge.name] = await Proxy(outer, inner).__aenter__()
        self._credentials = Credentials(self._deployment, "edge", self._liar)
        address = self._deployment.edge(self._liar).listen
        self._transport = GrpcTransport(self._deployment, self._credentials, address)
        await self._transport.listen(dict.fromkeys(Call, self._lie), self._lie)  # type: ignore[arg-type]
        self._flooding = asyncio.ensure_future(self._flood())

    async def _end(self) -> None:
        self._flooding.cancel()
        await asyncio.gather(self._flooding, return_exceptions=True)
        await self._transport.stop()
        for proxy in self._proxies.values():
            await proxy.__aexit__()

    async def _lie(self, stream: Any) -> None:
        """Takes every caller for a neighbour: another lie every half second."""
        first = await stream.read()
        if not hasattr(first, "hello"):
            return
        periods = self._deployment.schedule.iterations // self._deployment.schedule.tau1
        hello = v1.Hello()
        hello.CopyFrom(first.hello)
        hello.name, hello.incarnation, hello.done = self._liar, 1, 1
        if not isinstance(first, v1.LinkMessage):
            return
        for name, value in self._credentials.prove(first.hello.nonce, stream.who()).items():
            setattr(hello, name, value)
        await stream.write(v1.LinkMessage(hello=hello))
        reading = asyncio.ensure_future(self._deaf(stream))
        try:
            for number in range(10**6):
                await stream.write(self._lies(number, periods))
                self.counts["lies"] += 1
                await asyncio.sleep(0.5)
        finally:
            reading.cancel()

    @staticmethod
    async def _deaf(stream: Any) -> None:
        with contextlib.suppress(StreamLost):
            while await stream.read() is not None:
                pass

    def _lies(self, number: int, periods: int) -> v1.LinkMessage:
        kinds = (
            v1.LinkMessage(progress=v1.Progress(done=periods)),
            v1.LinkMessage(progress=v1.Progress(done=1)),
            v1.LinkMessage(state=v1.LinkState(edge="a", number=2**64 - 1)),
            v1.LinkMessage(state=v1.LinkState(edge=f"x{number}", number=1)),
            v1.LinkMessage(decision=v1.Decision(period=number, ballot=number, word=v1.Word.COMMIT)),
            v1.LinkMessage(decision=v1.Decision(period=number, ballot=number, word=v1.Word.ASK)),
            v1.LinkMessage(wanted=v1.Wanted()),
            v1.LinkMessage(progress=v1.Progress(done=periods + 1)),
        )
        if self._deployment.most_steps:  # swaps that are never decided, turns that cannot be
            model = as_vector(np.full(toy.SIZE, 10.0))
            offer = frames.header(model, 1, stage=v1.Stage.OFFER, ballot=number)
            wrong = v1.Count(edge="a", turns=2**63, steps=float("nan"))
            kinds = (
                *kinds[:-1],
                v1.LinkMessage(model=offer),
                v1.LinkMessage(progress=v1.Progress(done=1, counts=[wrong])),
                kinds[-1],
            )
        return kinds[number % len(kinds)]

    async def _flood(self) -> None:
        """As fast as it is let: models of other periods, of nonsense, and of 1e30."""
        me = self._deployment.client(self._flooder)
        credentials = Credentials(self._deployment, "client", self._flooder)
        door = GrpcTransport(self._deployment, credentials)
        edges = [me.edge, *me.fallbacks]
        for number in range(10**9):
            stream = await door.dial(edges[number % len(edges)], Call.WORK)
            try:
                async with asyncio.timeout(5.0):
                    await self._pester(stream, me)
            except (StreamLost, TimeoutError):
                await asyncio.sleep(0.2)
            finally:
                stream.close()
                await stream.wait_closed()

    async def _pester(self, stream: Any, me: Any) -> None:
        hello = v1.Hello(
            protocol=PROTOCOL,
            name=me.name,
            deployment=self._deployment.digest,
            samples=me.samples,
            values=toy.SIZE,
        )
        await stream.write(v1.FromClient(hello=hello))
        period = 0
        while (message := await stream.read()) is not None:
            if message.WhichOneof("body") == "task":
                period = message.task.period
            for value, when in ((1e30, period), (np.nan, period), (1e4, period), (0.0, 10**6)):
                vector = as_vector(np.full(toy.SIZE, value))
                announced = frames.header(vector, when, samples=me.samples)
                await stream.write(v1.FromClient(model=announced))
                self.counts["false models"] += 1
                for chunk in frames.chunks(vector):
                    await stream.write(v1.FromClient(chunk=chunk))
