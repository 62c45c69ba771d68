"""What a client's model passes before it counts: every check is a function, and stands in one list.

    header   ON_HEADER, then those of `frames`: the model's shape, type, base and hash
    values   those of `frames`, chunk by chunk: order, size, finite, magnitude; at the end the hash
    model    WHEN_WHOLE
    period   at its end `carrier` leaves out what is not finite in the model of now, and what is
             too large beside the others' (`averaging`)

A check raises Refused, and the client is told why; or Late, which is nobody's fault.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sdfeel.deploy.cluster.averaging import Upload
from sdfeel.deploy.cluster.session import Given, Session
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.packing import packing_of

if TYPE_CHECKING:
    from sdfeel.deploy.cluster.cluster import Cluster

__all__ = ["ON_HEADER", "WHEN_WHOLE", "Arrival", "Late", "Reception"]


class Late(Exception):  # noqa: N818 - said of a model
    """The period that it is for is over."""


@dataclass(frozen=True)
class Arrival:
    """A client's model on its way in."""

    cluster: Cluster
    session: Session
    announced: v1.ModelHeader

    @property
    def client(self) -> str:
        return self.session.name

    @property
    def period(self) -> int:
        return self.announced.period

    @property
    def given(self) -> Given:
        """The work that it answers. Raises Late if the client has none, or another one."""
        given = self.session.given
        if given is None or given.period != self.period:
            raise Late
        return given


def is_first(arrival: Arrival) -> None:
    if arrival.period == arrival.cluster.period and arrival.client in arrival.cluster.uploads:
        raise Refused("replayed", f"a second model for period {arrival.period}")


def is_of_this_period(arrival: Arrival) -> None:
    """Or, in rounds, of an earlier one that it was given work for."""
    period, now = arrival.period, arrival.cluster.period
    if period > now:
        raise Refused("period", f"period {period}, this is {now}")
    _ = arrival.given
    if not arrival.cluster.is_wanted(period):
        raise Late


def has_its_samples(arrival: Arrival) -> None:
    samples = arrival.announced.samples
    if samples != arrival.cluster.topology.at(arrival.period).samples(arrival.client):
        raise Refused("samples", f"{samples} samples, not as provisioned")


def has_possible_steps(arrival: Arrival) -> None:
    """Without rounds a client says how many it made; in rounds nobody asks."""
    most, steps = arrival.cluster.node.deployment.most_steps, arrival.announced.steps
    if most and not 1 <= steps <= most:
        raise Refused("steps", f"{steps} steps, from 1 to {most} can be")


def is_not_elsewhere(arrival: Arrival) -> None:
    """Nobody is refused at home for what another edge says, which may lie.

    A guest is, also in the period after that: what is said of this one may still be on its way.
    """
    client, last = arrival.client, arrival.cluster.elsewhere.get(arrival.client, 0)
    if client not in arrival.cluster.home and last and last + 1 >= arrival.period:
        raise Refused("elsewhere", f"{client} has taken part in period {last} at another edge")


Check = Callable[[Arrival], None]
ON_HEADER: Sequence[Check] = (is_first, is_of_this_period, has_its_samples, has_possible_steps)
WHEN_WHOLE: Sequence[Check] = (is_of_this_period, is_not_elsewhere)


class Reception:
    """Of one client's stream."""

    def __init__(self, cluster: Cluster, session: Session) -> None:
        self._cluster, self._session = cluster, session
        self._arrival: Arrival | None = None
        self._incoming: frames.Incoming | None = None

    async def take(self, message: Any) -> None:
        """What the client has sent, which is a model or a part of one."""
        self._cluster.node.metrics.bytes.labels("clients", "in").inc(message.ByteSize())
        kind = message.WhichOneof("body")
        try:
            if kind == "model":
                await self._open(message.model)
            elif kind == "chunk" and self._incoming is not None:
                await self._receive(message.chunk)
        except Late:
            self._cluster.late(self._session, self._drop().period)
        except Refused as refusal:
            self._drop()
            self._cluster.refuse(self._session.name, refusal)

    def end(self) -> None:
        """The stream has ended."""
        if self._incoming is not None:
            self._drop()
            ended = Refused("truncated", "the stream ended within a model")
            self._cluster.count(self._session.name, ended)

    def _drop(self) -> Any:
        """Forget what is on its way; its header."""
        if self._incoming is not None:
            self._incoming.abandon()
        self._incoming, arrival = None, self._arrival
        return arrival

    async def _open(self, announced: v1.ModelHeader) -> None:
        if self._incoming is not None:
            raise Refused("truncated", "a new model before the last was whole")
        node, arrival = self._cluster.node, Arrival(self._cluster, self._session, announced)
        self._arrival = arrival
        for check in ON_HEADER:
            check(arrival)
        packing = packing_of(node.deployment.codecs.up)
        most, start = node.deployment.limits.magnitude, arrival.given.model
        self._incoming = frames.Incoming(announced, node.size, most, node.folder, start, packing)
        if announced.data:
            await self._receive(v1.Chunk(data=announced.data))

    async def _receive(self, chunk: v1.Chunk) -> None:
        incoming, arrival = self._incoming, self._arrival
        assert incoming is not None and arrival is not None  # noqa: S101, PT018 - by its callers
        vector = await incoming.take(chunk)
        if vector is None:
            return
        self._incoming = None
        for check in WHEN_WHOLE:
            check(arrival)
        given, announced = arrival.given, arrival.announced
        most_steps = self._cluster.node.deployment.most_steps
        upload = Upload(
            vector,
            incoming.moved,
            announced.steps if most_steps else self._cluster.topology.tau1,
            period=announced.period,
            begun=given.model,
            epoch=announced.epoch,
            learned=announced.learned,
        )
        self._session.given = None
        seconds = asyncio.get_running_loop().time() - given.at
        self._cluster.accept(arrival, upload, seconds)
