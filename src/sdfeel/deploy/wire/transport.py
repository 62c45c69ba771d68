"""What nodes need of a network: standing streams of messages to a peer whose name is certain.

`grpc_transport` is the real one. Tests have a twin in memory with a clock of its own, in which one
seed decides what is delayed, lost and cut.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, Protocol

from sdfeel.deploy.protocol import v1
from sdfeel.deploy.trust.identity import Identity

__all__ = ["Call", "Caller", "Serve", "Status", "Stream", "StreamLost", "Transport", "TurnedAway"]


class Call(Enum):
    """The kinds of stream."""

    WORK = "work"  # a client dials an edge
    LINK = "link"  # an edge dials a neighbour
    MODEL = "model"  # an operator asks an edge for its model


class StreamLost(Exception):  # noqa: N818 - it happens every day
    """The stream has ended, or could not be opened."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TurnedAway(StreamLost):
    """The other end does not want us, and has said why."""


class Caller(Protocol):
    """Somebody at the door."""

    def who(self) -> Identity | None:
        """As its certificate says; None in plain text. Raises Refused if it is not good."""

    def close(self, reason: str = "") -> None:
        """Ends it for both: whoever reads it here is woken."""


class Stream(Caller, Protocol):
    """Messages arrive in order and once, until the stream ends."""

    async def read(self) -> Any | None:
        """The next message; None when the other end has ended the stream. Raises StreamLost."""

    async def write(self, message: Any) -> None:
        """Returns when there is room for more. Raises StreamLost."""

    async def wait_closed(self) -> None:
        """Until nothing of it is left; after `close`, by whoever dialled it."""


Serve = Callable[[Stream], Awaitable[None]]
Status = Callable[[v1.StatusRequest, Caller], Awaitable[v1.StatusReply]]


class Transport(Protocol):
    """One node's door to the network."""

    async def listen(self, calls: Mapping[Call, Serve], status: Status) -> None:
        """Serves callers until `stop`; a stream ends with its function, or by Refused."""

    async def dial(self, edge: str, call: Call) -> Stream:
        """A stream to an edge, which is the one of that name or nobody."""

    async def is_there(self, edge: str) -> bool:
        """Whether the edge could be dialled now."""

    async def stop(self) -> None: ...
