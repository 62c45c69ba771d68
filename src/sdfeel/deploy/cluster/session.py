"""What clients hold of their edge's model, and the standing stream of each."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from sdfeel.algorithm.methods.codecs import Draw
from sdfeel.deploy.facts.metrics import Metrics
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.waiting import offload
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.outbox import Outbox
from sdfeel.deploy.wire.packing import Load, Packed, nearer, packing_of
from sdfeel.deploy.wire.transport import Stream

__all__ = ["Downlink", "Session"]

WORDS = 64
STREAM = 1  # of the draws on the way down, as in the simulator


@dataclass(frozen=True)
class Given:
    """The work that a client has: the period, the model to begin with, and since when."""

    period: int
    model: Vector
    at: float


class Session:
    """One client's stream. What is due to the client waits here, newest work only.

    given  the work that it has not answered
    until  when its certificate ends; None in plain text
    """

    def __init__(
        self,
        hello: v1.Hello,
        stream: Stream,
        metrics: Metrics,
        until: datetime.datetime | None = None,
    ) -> None:
        self.until = until
        self.name, self.process, self.stream = hello.name, hello.incarnation, stream
        sent = metrics.bytes.labels("clients", "out").inc
        self.outbox = Outbox(stream, lambda chunk: v1.FromEdge(chunk=chunk), sent, WORDS)
        self.given: Given | None = None
        self._holds = b""  # the sha256 of the model that it was given last

    def give(
        self,
        task: v1.Task,
        model: Vector,
        change: Packed | None = None,
        beside: Sequence[tuple[v1.FromEdge, Vector]] = (),
    ) -> None:
        """The model of the task; if it has the one that `change` is to be added to, only that.

        beside  rows that go before it
        """
        self.given = Given(task.period, model, asyncio.get_running_loop().time())
        has_base = change is not None and change.base == self._holds
        self._holds = model.sha256
        if change is None or not has_base or self.outbox.has_models:
            self._replace([*beside, (v1.FromEdge(task=task), model)])
            return
        smaller = v1.Task()
        smaller.CopyFrom(task)
        smaller.model.CopyFrom(frames.header(change, task.period))
        self._replace([*beside, (v1.FromEdge(task=smaller), change)])

    def _replace(self, loads: Sequence[tuple[v1.FromEdge, Load]]) -> None:
        self.outbox.replace(*loads[0])
        for announcement, load in loads[1:]:
            self.outbox.offer(announcement, load)

    def tell(self, note: v1.FromEdge) -> None:
        self.outbox.tell(note)

    def receipt(self, period: int, verdict: v1.Verdict, reason: str = "") -> None:
        self.tell(v1.FromEdge(receipt=v1.Receipt(period=period, verdict=verdict, reason=reason)))


class Downlink:
    """Of one edge. It is in memory only: after a restart everybody is given the whole model.

    held    what clients were given last, all the same
    change  how that differs from what they were given before; None: they need all of it
    """

    def __init__(self, topology: Topology, edge: str, folder: Path) -> None:
        self.held: Vector | None = None
        self._source: Vector | None = None
        self.change: Packed | None = None
        self._packing = packing_of(topology.deployment.codecs.down)
        self._seed = topology.deployment.seed
        self._topology, self._edge = topology, edge
        self._folder = folder

    async def next(self, k: int, model: Vector) -> Vector:
        """What clients hold after iteration k: nearer to the edge's model than before, or equal."""
        before, self.held, self.change = self.held, model, None
        self._source = model
        packing = self._packing
        if packing is not None and before is not None:
            number = np.array([self._topology.at(0).edges.index(self._edge)])
            draw = partial(Draw, self._seed, number, k, STREAM)
            message = await offload(
                model.is_large, lambda: nearer(packing, model, before, draw, self._folder)
            )
            if message is not None:  # else the whole model is given
                self.held, self.change = message
        return self.held

    @property
    def last(self) -> tuple[Vector, Vector]:
        """The model that was given last, and what clients hold of it."""
        assert self._source is not None and self.held is not None  # noqa: S101, PT018 - see `next`
        return self._source, self.held
