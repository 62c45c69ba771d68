"""Keeps the stream to a neighbour up, and puts a new one in its place when certificates change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import grpc

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.link import rpc
from sdfeel.deploy.link.link import Link
from sdfeel.deploy.model import wire
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.trust.identity import Credentials, Identity, channel_options, check

__all__ = ["Dialler", "open_channel"]

RENEWAL_SECONDS = 0.5


def open_channel(deployment: Deployment, credentials: Credentials, edge: str) -> grpc.aio.Channel:
    """A channel to an edge of the deployment, as a node must open it."""
    options = channel_options(deployment.deadlines.ping, wire.MESSAGE_BYTES)
    return credentials.channel(deployment.edge(edge).address, edge, options)


class Dialler:
    """The end of a link that dials."""

    def __init__(
        self,
        deployment: Deployment,
        me: str,
        credentials: Credentials,
        link: Link,
        hello: Callable[[], v1.Hello],
        states: Callable[[], list[v1.LinkState]],
    ) -> None:
        self._deployment, self._me, self._credentials = deployment, me, credentials
        self._link, self._hello, self._states = link, hello, states
        self._last_problem = ""
        self._answered_by: Identity | None = None

    async def run(self) -> None:
        """For ever: connect, serve, wait a little, again."""
        current: asyncio.Task[None] | None = None
        stamp = self._credentials.stamp
        try:
            while True:
                renewed = self._credentials.stamp != stamp and not self._link.deciding
                if current is None or current.done() or renewed:
                    stamp = self._credentials.stamp
                    before, current = current, asyncio.create_task(self._connect())
                    if before is not None and not before.done():
                        await self._replace(before)
                pause = self._deployment.deadlines.retry
                await asyncio.wait({current}, timeout=min(RENEWAL_SECONDS, pause))
                self._check_revoked(current)
                if current.done():
                    await asyncio.sleep(pause)
        finally:
            if current is not None:
                current.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await current

    def _check_revoked(self, current: asyncio.Task[None]) -> None:
        """The other end's certificate may be revoked while the stream stands."""
        if self._answered_by is not None:
            try:
                check(self._answered_by, self._credentials)
            except wire.Refused as refusal:
                self._problem(refusal.reason)
                current.cancel()

    async def _replace(self, before: asyncio.Task[None]) -> None:
        """Gives the new stream time to take over, then ends the old one."""
        generation = self._link.generation
        for _ in range(50):
            if self._link.generation != generation:
                break
            await asyncio.sleep(0.02)
        before.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await before

    async def _connect(self) -> None:
        if self._credentials.has_expired:
            self._problem("the own certificate has expired")
            return
        channel = open_channel(self._deployment, self._credentials, self._link.peer)
        call: Any = None
        try:
            call = rpc.call_link(channel)
            hello, nonce = self._hello(), self._credentials.challenge()
            hello.nonce = nonce
            async with asyncio.timeout(self._deployment.deadlines.ping):
                await call.write(v1.LinkMessage(hello=hello))
                answer = await call.read()
            if answer is grpc.aio.EOF:
                self._problem(await call.details() or "the stream ended")
                return
            peer = self._link.peer
            self._answered_by = self._credentials.check_edge(peer, answer.hello, nonce)
            self._last_problem = ""
            await self._link.serve(call, answer.hello, self._states())
        except grpc.aio.AioRpcError as problem:
            self._problem(f"{problem.code().name}: {problem.details()}")
        except TimeoutError:
            self._problem("no answer")
        except wire.Refused as refusal:
            self._problem(refusal.reason)
        finally:
            self._answered_by = None
            if call is not None:
                call.cancel()
            await channel.close()

    def _problem(self, reason: str) -> None:
        """Logged when it is news: an edge may be away for days."""
        if reason != self._last_problem:
            self._last_problem = reason
            self._link.note("dial-failed", peer=self._link.peer, reason=reason)
