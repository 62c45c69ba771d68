"""What one certificate may ask of an edge in a second: streams, and messages on all of them.

Whoever asks for more waits: its streams are served later, its messages are read later, and gRPC's
flow control holds it back. Only a few streams may wait at a time; more are refused before their
certificate or their hello is looked at. So one member that floods does not slow the others down,
and one that dials a little too often is not harmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sdfeel.deploy.refused import Refused
from sdfeel.deploy.token_bucket import TokenBucket
from sdfeel.deploy.trust.identity import name_of

__all__ = ["CallerRates", "Rates"]

STREAMS, STREAMS_AT_ONCE = 10.0, 40.0  # a second: the page asks every .4 s for the status
WAITING = 32  # streams of a certificate that wait for their turn
MESSAGES, MESSAGES_AT_ONCE = 500.0, 2000.0  # a second, of a client
CHUNK = 0.25  # of a message: what a chunk of a model costs, which is most of what honest nodes send
# Seconds: less is not waited for, so that a loop does not wake up for every message; and whoever
# waits for this member, which is an honest one's wait too, does not wait longer.
PAUSE = 0.005
EXCHANGE = 4  # messages of a neighbour in an exchange
KNOWN = 16_384  # certificates that are told apart


@dataclass
class CallerRates:
    """Of one certificate.

    name  who that is, for a refusal; looked up once
    """

    name: str
    streams: TokenBucket
    messages: TokenBucket
    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    waiting: int = 0

    async def open_stream(self) -> None:
        """Return when its turn has come. Raises Refused if too many wait for it already."""
        if self.streams.take(self.now()):
            return
        if self.waiting >= WAITING:
            raise Refused("rate", f"{self.name} opens too many streams: {self.waiting} wait")
        self.waiting += 1
        try:
            await self.sleep(self.streams.charge(self.now()))
        finally:
            self.waiting -= 1

    async def read_message(self, cost: float = 1.0) -> None:
        """Count a message that has been read; return when the next may be."""
        seconds = self.messages.charge(self.now(), cost)
        if seconds > PAUSE:
            await self.sleep(seconds)


@dataclass
class Rates:
    """Of an edge.

    retry      seconds between two attempts of a node to connect
    exchanges  of neighbours in a period, where a client sends one model
    """

    retry: float
    exchanges: int = 1
    now: Callable[[], float] = lambda: asyncio.get_running_loop().time()
    _callers: dict[bytes, CallerRates] = field(default_factory=dict)

    def of(self, certificate: bytes) -> CallerRates:
        """Return the rates of a certificate; they are the same for all of its connections."""
        rates = self._callers.get(certificate)
        if rates is None:
            while len(self._callers) >= KNOWN:  # who was here first has been quiet longest
                del self._callers[next(iter(self._callers))]
            streams, name = min(1 / STREAMS, self.retry / 2), name_of(certificate)
            messages = MESSAGES * (1 if name.startswith("client/") else EXCHANGE * self.exchanges)
            rates = self._callers[certificate] = CallerRates(
                name,
                TokenBucket(streams, STREAMS_AT_ONCE, WAITING),
                TokenBucket(1 / messages, MESSAGES_AT_ONCE),
                self.now,
            )
        return rates
