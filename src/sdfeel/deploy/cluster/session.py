"""One client's standing stream, as its edge has it."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from sdfeel.deploy.facts.metrics import Metrics
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.outbox import Outbox
from sdfeel.deploy.wire.packing import Load, Packed
from sdfeel.deploy.wire.transport import Stream

__all__ = ["Session"]

WORDS = 64


@dataclass(frozen=True)
class Given:
    """The work that a client has: the period, the model to begin with, and since when."""

    period: int
    model: Vector
    at: float


class Session:
    """What is due to the client waits here, newest work only.

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
