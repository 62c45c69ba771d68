"""Who is let in at an edge's door, and who is shown out again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.stream import Tell
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.identity import Credentials, Identity, check
from sdfeel.deploy.wire.transport import Caller, Stream

__all__ = ["Admission"]

STREAMS = 4  # of one certificate at a time: a node needs one, and another to take its place


@dataclass
class Admission:
    """Of one edge.

    timeout   seconds in which a caller must have said hello
    """

    credentials: Credentials
    tell: Tell
    timeout: float
    _inside: dict[Caller, Identity] = field(default_factory=dict)

    @contextlib.contextmanager
    def admitted(self, caller: Caller, *roles: str) -> Iterator[Identity | None]:
        """Lets in only certificates of these roles; a refusal is counted and told."""
        identity: Identity | None = None
        try:
            identity = caller.who()
            if identity is not None:
                self._admit(caller, identity, roles)
            yield identity
        except Refused as refusal:
            self._refuse(refusal, identity)
            raise
        finally:
            self._inside.pop(caller, None)

    def _admit(self, caller: Caller, identity: Identity, roles: tuple[str, ...]) -> None:
        who = _who(identity)
        if identity.role not in roles:
            raise Refused("role", f"{who} may not make this call")
        known = [other for other in self._inside.values() if _who(other) == who]
        if len(known) >= STREAMS:
            raise Refused("limit", f"{len(known)} streams of {who} are open")
        self._inside[caller] = identity

    async def hello(self, stream: Stream) -> v1.Hello:
        """The first message of a stream, which must come soon."""
        try:
            async with asyncio.timeout(self.timeout):
                first = await stream.read()
        except TimeoutError:
            raise Refused("silent", "no hello in time") from None
        if first is None or first.WhichOneof("body") != "hello":
            raise Refused("protocol", "the first message must be a hello")
        hello: v1.Hello = first.hello
        return hello

    def look(self) -> None:
        """Ends streams whose certificate has run out or was revoked."""
        for caller, identity in list(self._inside.items()):
            try:
                check(identity, self.credentials)
            except Refused as refusal:
                self._refuse(refusal, identity)
                caller.close(refusal.reason)

    def _refuse(self, refusal: Refused, identity: Identity | None) -> None:
        name = "" if identity is None else _who(identity)
        self.tell(facts.PeerRefused(kind=refusal.kind, reason=refusal.reason, caller=name))


def _who(identity: Identity) -> str:
    return f"{identity.role}/{identity.name}"
