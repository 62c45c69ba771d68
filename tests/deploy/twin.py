"""A network in memory: the transport's twin, in which one seed decides what goes wrong.

Streams deliver in order and once, as gRPC's do, until they break; what was on its way then is lost.
A way may be slow, or silent for a while: a stream that hears nothing for `ping` seconds breaks.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from twin_identity import TwinAuthority
from virtual import NODE, VirtualLoop

from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.identity import Identity, check
from sdfeel.deploy.wire.transport import Call, StreamLost, TurnedAway

Way = tuple[str, str]
TICK = 1e-7
ROOM = 64  # messages on their way, above which a writer waits


class End:
    """One end of a stream."""

    def __init__(self, net: Net, me: str, peer: str, identity: Identity) -> None:
        self.net, self.me, self.peer, self.identity = net, me, peer, identity
        self.credentials: Any = None  # of an end that was dialled
        self.other: End
        self.inbox: deque[Any] = deque()
        self.lost: StreamLost | None = None
        self.over = False
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()
        self._flying = 0
        self._last = 0.0
        self.held: list[Any] = []

    def who(self) -> Identity | None:
        if self.credentials is not None:
            check(self.identity, self.credentials)
        return self.identity

    async def read(self) -> Any | None:
        while not self.inbox:
            if self.lost is not None:
                raise self.lost
            if self.over:
                return None
            self._reader = self.net.loop.create_future()
            await self._reader
        return self.inbox.popleft()

    async def write(self, message: Any) -> None:
        if self.lost is not None or self.over:
            raise self.lost or StreamLost("ended")
        self.net.send(self, message)
        if self._flying > ROOM:
            room = self.net.loop.create_future()
            self._writers.append(room)
            await room
            if self.lost is not None:
                raise self.lost

    def fly(self, message: Any, delay: float) -> None:
        """Towards the other end, behind what was sent before."""
        self._flying += 1
        # Later than the one before: a heap does not know who came first at the same time.
        self._last = max(self._last + TICK, self.net.loop.time() + delay)
        self.net.loop.call_at(self._last, self._land, message)

    def _land(self, message: Any) -> None:
        self._flying -= 1
        if self._writers:
            _wake(self._writers.popleft())
        if self.other.lost is None and not self.other.over and self.lost is None:
            self.other.take(message)

    def take(self, message: Any) -> None:
        self.inbox.append(message)
        self.wake()

    def wake(self) -> None:
        if self._reader is not None:
            _wake(self._reader)

    def close(self, reason: str = "") -> None:
        """The other end hears of it, unless the way there is silent or we are dead."""
        was_lost = self.lost is not None
        self.end(StreamLost(reason or "this stream was ended"))
        if not was_lost and self.net.is_open(self.me, self.peer):
            self.other.end(StreamLost(reason or "the other end has gone"))

    def end(self, problem: StreamLost) -> None:
        if self.lost is None:
            self.lost = problem
            self.net.ends.pop(self, None)
            self.wake()
            while self._writers:
                _wake(self._writers.popleft())

    async def wait_closed(self) -> None:
        return


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Net:
    """All nodes' doors, all streams, and what is wrong with the ways between them.

    slow      seconds that a message takes at least on a way
    silent    ways on which nothing arrives for now
    repeats   how likely a word arrives twice
    authority  issues the certificates of the nodes; None: in plain text
    """

    def __init__(self, loop: VirtualLoop, chance: random.Random, ping: float) -> None:
        self.loop, self.chance, self.ping = loop, chance, ping
        self.doors: dict[str, Door] = {}
        self.ends: dict[End, None] = {}
        self.slow: dict[Way, float] = {}
        self.silent: set[Way] = set()
        self.repeats = 0.0
        self.base = 0.002
        self.authority: TwinAuthority | None = None

    def is_open(self, a: str, b: str) -> bool:
        return (a, b) not in self.silent

    def delay(self, way: Way) -> float:
        return self.base * self.chance.random() + self.slow.get(way, 0.0)

    def send(self, end: End, message: Any) -> None:
        way = (end.me, end.peer)
        if not self.is_open(*way):
            end.held.append(message)  # sent again once the way is open, if the stream lives
            return
        end.fly(message, self.delay(way))
        if self.repeats and self.chance.random() < self.repeats and _is_word(message):
            end.fly(message, self.delay(way))

    def cut(self, a: str, b: str) -> None:
        """Every stream between two nodes breaks."""
        for end in [end for end in self.ends if {end.me, end.peer} == {a, b}]:
            end.end(StreamLost("connection reset"))

    def silence(self, way: Way, seconds: float) -> None:
        """Nothing arrives on this way for a while; each end notices by itself, if it is long."""
        self.silent.add(way)
        self.loop.call_later(seconds, self._heal, way)
        for end in [end for end in self.ends if way in ((end.me, end.peer), (end.peer, end.me))]:
            after = self.ping * (1 + self.chance.random())
            if after < seconds:
                self.loop.call_later(after, end.end, StreamLost("no answer to pings"))

    def _heal(self, way: Way) -> None:
        self.silent.discard(way)
        for end in [end for end in self.ends if (end.me, end.peer) == way]:
            held, end.held = end.held, []
            for message in held:
                self.send(end, message)

    def vanish(self, node: str, quietly: bool = False) -> None:
        """A node dies: its peers see the streams end, at once or when pings fail."""
        self.doors.pop(node, None)
        for end in [end for end in self.ends if node in (end.me, end.peer)]:
            if quietly and end.me == node:
                end.end(StreamLost("no power"))  # before anything of it can say farewell
                continue
            wait = self.ping * (1 + self.chance.random()) if quietly else 0.0
            self.loop.call_later(wait, end.end, StreamLost("connection reset"))


def _is_word(message: Any) -> bool:
    return message.WhichOneof("body") in ("decision", "progress", "announce", "state")


class Door:
    """One node's transport; with an authority, it shows a certificate and looks at the other's."""

    def __init__(self, net: Net, role: str, name: str) -> None:
        self.net, self.name, self.role = net, name, role
        self.credentials: Any = None
        self._serve: dict[Call, Callable[[Any], Awaitable[None]]] = {}
        self.served: asyncio.Future[None] | None = None

    @property
    def identity(self) -> Identity:
        """As of now: whoever has renewed its certificate dials with the new one."""
        if self.net.authority is None:
            return Identity(self.role, self.name)
        return self.net.authority.identity(self.role, self.name)

    def shake_hands(self, other: Identity) -> None:
        """As TLS does: by this node's clock, and before anybody can say anything."""
        token = NODE.set(self.name)
        try:
            if self.net.authority is not None and not self.net.authority.is_good(other.serial):
                raise StreamLost("handshake failed")
        finally:
            NODE.reset(token)

    async def listen(self, calls: Any, status: Any) -> None:
        self._serve = dict(calls)
        self.status = status
        self.net.doors[self.name] = self

    async def stop(self) -> None:
        """What was said before arrives."""
        await asyncio.sleep(2 * self.net.base)
        self.net.vanish(self.name)

    async def is_there(self, edge: str) -> bool:
        await asyncio.sleep(self.net.delay((self.name, edge)))
        ways = ((self.name, edge), (edge, self.name))
        return edge in self.net.doors and all(self.net.is_open(*way) for way in ways)

    async def dial(self, edge: str, call: Call) -> End:
        await asyncio.sleep(self.net.delay((self.name, edge)))
        door = self.net.doors.get(edge)
        is_there = await self.is_there(edge)
        if door is None or not is_there or self.net.doors.get(edge) is not door:
            raise StreamLost("UNAVAILABLE")  # or another life has taken its place meanwhile
        self.shake_hands(door.identity)
        door.shake_hands(self.identity)
        near = End(self.net, self.name, edge, door.identity)
        far = End(self.net, edge, self.name, self.identity)
        far.credentials = door.credentials
        near.other, far.other = far, near
        self.net.ends |= {near: None, far: None}
        token = NODE.set(edge)
        try:
            door.served = asyncio.ensure_future(door.receive(far, call))
        finally:
            NODE.reset(token)
        return near

    async def receive(self, end: End, call: Call) -> None:
        problem = StreamLost("the other end has gone")
        try:
            await self._serve[call](end)
        except Refused as refusal:
            problem = TurnedAway(refusal.reason)
        except StreamLost:
            pass
        finally:
            end.end(problem)
            self.net.loop.call_later(self.net.base, end.other.end, problem)
