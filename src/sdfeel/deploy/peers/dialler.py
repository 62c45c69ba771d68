"""Keeps the stream to a neighbour up, and puts a new one in its place when certificates change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sdfeel.deploy.facts import facts
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.link import Link
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.identity import Identity, check
from sdfeel.deploy.waiting import Retry, end
from sdfeel.deploy.wire.transport import Call, Stream, StreamLost, Transport

__all__ = ["Dialler"]

RENEWAL_SECONDS = 0.5


@dataclass
class Dialler:
    """The end of a link that dials.

    hello    ours
    check    raises Refused if the neighbour's is not good
    states   what the neighbour is told first
    """

    node: Node
    peer: str
    links: Links
    transport: Transport
    hello: Callable[[], v1.Hello]
    check: Callable[[v1.Hello, str], None]
    states: Callable[[], list[v1.LinkState]]

    def __post_init__(self) -> None:
        self.credentials, self.deadlines = self.node.credentials, self.node.deployment.deadlines
        self._retry = Retry(self.deadlines.retry, self.node.chance)
        self._last_problem = ""
        self._answered_by: Identity | None = None

    @property
    def _link(self) -> Link:
        return self.links[self.peer]

    async def run(self) -> None:
        """For ever: connect, serve, wait a little, again."""
        current: asyncio.Task[None] | None = None
        stamp = self.credentials.stamp
        try:
            while True:
                is_deciding = self.links.agreement.is_deciding(self.peer)
                renewed = self.credentials.stamp != stamp and not is_deciding
                if current is None or current.done() or renewed:
                    stamp = self.credentials.stamp
                    before, current = current, asyncio.create_task(self._connect())
                    if before is not None and not before.done():
                        await self._replace(before)
                await asyncio.wait({current}, timeout=RENEWAL_SECONDS)
                self._check_revoked(current)
                if current.done():
                    await self._retry.pause()
        finally:
            if current is not None:
                await end(current)

    def _check_revoked(self, current: asyncio.Task[None]) -> None:
        """The other end's certificate may be revoked while the stream stands."""
        if self._answered_by is not None:
            try:
                check(self._answered_by, self.credentials)
            except Refused as refusal:
                self._problem(refusal.reason)
                current.cancel()

    async def _replace(self, before: asyncio.Task[None]) -> None:
        """Gives the new stream time to take over, then ends the old one."""
        await asyncio.wait({before}, timeout=2 * RENEWAL_SECONDS)
        await end(before)

    async def _connect(self) -> None:
        if self.credentials.has_expired:
            self._problem("its own certificate has ended", "expired")
            return
        stream: Stream | None = None
        answered_by: Identity | None = None
        try:
            stream = await self.transport.dial(self.peer, Call.LINK)
            hello, nonce = self.hello(), self.credentials.challenge()
            hello.nonce = nonce
            async with asyncio.timeout(self.deadlines.ping):
                await stream.write(v1.LinkMessage(hello=hello))
                answer = await stream.read()
            if answer is None or answer.WhichOneof("body") != "hello":
                self._problem("the stream ended")
                return
            answered_by = self.credentials.check_edge(self.peer, answer.hello, nonce)
            self._answered_by = answered_by
            self.check(answer.hello, self.peer)
            self._last_problem = ""
            await self._link.serve(stream, answer.hello, self.states())
        except StreamLost as problem:
            self._problem(problem.reason)
        except Refused as refusal:
            self.node.metrics.refused.labels(refusal.kind).inc()
            self._problem(refusal.reason, refusal.kind)
        except TimeoutError:
            self._problem("no answer")
        finally:
            # After a renewal the new stream has put its own identity here before the old one ends.
            if self._answered_by is answered_by:
                self._answered_by = None
            if stream is not None:
                stream.close()
                await stream.wait_closed()

    def _problem(self, reason: str, kind: str = "") -> None:
        """Logged when it is news: an edge may be away for days."""
        if reason != self._last_problem:
            self._last_problem = reason
            self.node.tell(facts.DialFailed(peer=self.peer, reason=reason, kind=kind))
