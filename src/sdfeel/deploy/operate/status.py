"""What `sdfeel status` shows: every edge, its period, clients, links and losses in one table."""

from __future__ import annotations

import asyncio
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.facts.period_times import PARTS
from sdfeel.deploy.model.store import Store
from sdfeel.deploy.operate.asking import operator, printable
from sdfeel.deploy.operate.export import state_folder
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.wire.grpc_transport import call_status, open_channel

__all__ = ["EdgeConnection", "EdgeStatus", "ask", "is_well", "or_ended", "status_table"]


@dataclass(frozen=True)
class EdgeStatus:
    """One edge as it answered; `problem` says why it did not."""

    name: str
    problem: str = ""
    period: int = 0
    periods: int = 0
    phase: str = ""
    ready: bool = False
    clients: tuple[str, ...] = ()
    expected: int = 0
    links: dict[str, str] = field(default_factory=dict)
    seconds_per_period: float = 0.0
    disagreement: float = 0.0
    refused: int = 0
    late: int = 0
    loss: float | None = None
    accuracy: float | None = None
    measures: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    certificate_hours: float | None = None
    phases: dict[str, float] = field(default_factory=dict)  # seconds of the last round
    memory: int = 0  # bytes; 0: it does not tell
    link_disagreement: dict[str, float] = field(default_factory=dict)
    pace: str = ""
    steps: float | None = None  # mean of its clients' at its last turn; None in rounds
    link_bytes: dict[str, dict[str, int]] = field(default_factory=dict)  # sent, received

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def is_well(rows: list[EdgeStatus]) -> bool:
    """Whether every edge is running or has finished."""
    return not any(row.problem for row in rows)


async def ask(
    deployment: Deployment, timeout: float = 2.0, state: Path | None = None
) -> list[EdgeStatus]:
    """All edges at once, with the operator's certificate.

    An edge that has ended does not answer; if its checkpoints lie here (in `state`, or `state`
    beside the file), they say how it ended.
    """
    credentials = operator(deployment)
    names = [edge.name for edge in deployment.edges]
    rows = await asyncio.gather(*(_one(deployment, credentials, n, timeout) for n in names))
    return [or_ended(deployment, row, state) for row in rows]


async def _one(
    deployment: Deployment, credentials: Credentials, edge: str, timeout: float
) -> EdgeStatus:
    line = EdgeConnection(deployment, credentials, edge)
    try:
        return await line.ask(timeout)
    finally:
        await line.close()


class EdgeConnection:
    """To one edge, for who asks again and again: it stands until something is wrong with it."""

    def __init__(self, deployment: Deployment, credentials: Credentials, edge: str) -> None:
        self._deployment, self._credentials, self.edge = deployment, credentials, edge
        self._channel: grpc.aio.Channel | None = None
        self._stamp = credentials.stamp

    async def ask(self, timeout: float) -> EdgeStatus:
        if self._stamp != self._credentials.stamp:  # renewed
            await self.close()
        if self._channel is None:
            self._channel = open_channel(self._deployment, self._credentials, self.edge)
            self._stamp = self._credentials.stamp
        row = await self._answer(self._channel, timeout)
        if row.problem:
            await self.close()  # gRPC would wait before it dials again
        return row

    async def _answer(self, channel: grpc.aio.Channel, timeout: float) -> EdgeStatus:
        nonce = self._credentials.challenge()
        try:
            reply: v1.StatusReply = await call_status(channel, timeout, nonce)
            self._credentials.check_edge(self.edge, reply, nonce)
        except grpc.aio.AioRpcError as problem:
            # What is behind an UNAVAILABLE stands at the end of gRPC's sentence.
            details = printable((problem.details() or "").rpartition("last error: ")[2])
            return EdgeStatus(self.edge, problem=f"{problem.code().name}: {details}")
        except Refused as refusal:
            return EdgeStatus(self.edge, problem=refusal.reason)
        return _row(self.edge, reply)

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _row(edge: str, reply: v1.StatusReply) -> EdgeStatus:
    """Texts are the peer's: they are made harmless here, before anybody prints them."""
    links = {
        printable(link.peer): ("up" if link.up else "down") + f" {link.used}+{link.skipped}"
        for link in reply.links
    }
    measures = {printable(one.name): one.value for one in reply.measures}
    return EdgeStatus(
        name=edge,
        period=reply.period,
        periods=reply.periods,
        phase=printable(reply.phase),
        ready=reply.ready,
        clients=tuple(printable(name) for name in reply.clients),
        expected=reply.expected,
        links=links,
        seconds_per_period=_finite(reply.seconds_per_period) or 0.0,
        disagreement=_finite(reply.disagreement) or 0.0,
        refused=reply.refused,
        late=reply.late,
        loss=_finite(measures.get("train_loss", measures.get("batch_loss"))),
        accuracy=_finite(measures.get("test_accuracy", measures.get("train_accuracy"))),
        measures={name: value for name, value in measures.items() if math.isfinite(value)},
        warnings=tuple(printable(warning) for warning in reply.warnings),
        certificate_hours=_finite(reply.certificate_hours),
        phases=_phases(reply),
        memory=reply.memory,
        link_disagreement={
            printable(link.peer): _finite(link.disagreement) or 0.0 for link in reply.links
        },
        pace=printable(reply.pace),
        steps=_finite(reply.steps) or None,
        link_bytes={
            printable(link.peer): {"sent": link.sent, "received": link.received}
            for link in reply.links
        },
    )


def _phases(reply: v1.StatusReply) -> dict[str, float]:
    """Only parts that there are, and seconds that can be."""
    told = {phase.name: phase.value for phase in reply.phases}
    found = {name: told[name] for name in PARTS if name in told}
    return {name: s for name, s in found.items() if math.isfinite(s) and s >= 0}


def or_ended(deployment: Deployment, row: EdgeStatus, state: Path | None) -> EdgeStatus:
    """Of an edge that does not answer: how it ended, if its checkpoints lie here and it has."""
    if not row.problem:
        return row
    periods = Topology(deployment).plan(row.name)
    folder = state_folder(deployment, row.name, state / row.name if state else None)
    done = Store(folder, {}).periods()
    if not done or done[-1] < periods:
        return row
    return replace(row, problem="", phase="finished", period=done[-1], periods=periods)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


COLUMNS = ("edge", "period", "phase", "clients", "links", "loss", "acc.", "s/period", "apart")


def status_table(rows: list[EdgeStatus], title: str) -> RenderableType:
    """For 80 columns. What is not as it should be stands below, a line each."""
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, overflow="fold", justify="left" if name == "edge" else "right")
    for row in rows:
        table.add_row(*(Text(cell, style="red" if row.problem else "") for cell in _cells(row)))
    notes = [Text(note, style="red") for row in rows for note in _notes(row)]
    return Group(table, *notes)


def _cells(row: EdgeStatus) -> tuple[str, ...]:
    if row.problem:
        return (row.name, "-", "no answer", *("-" for _ in COLUMNS[3:]))
    up = sum(state.startswith("up") for state in row.links.values())
    is_running = row.phase != "finished" or bool(row.links)
    return (
        row.name,
        f"{row.period}/{row.periods}",
        row.phase,
        f"{len(row.clients)}/{row.expected}" if is_running else "-",
        f"{up}/{len(row.links)}" if is_running else "-",
        "-" if row.loss is None else f"{row.loss:.3g}",
        "-" if row.accuracy is None else f"{row.accuracy:.1%}",
        f"{row.seconds_per_period:.2f}" if is_running else "-",
        f"{row.disagreement:.0e}" if is_running else "-",
    )


def _notes(row: EdgeStatus) -> list[str]:
    if row.problem:
        return [f"{row.name}: {row.problem}"]
    notes = [
        f"{row.name}: link to {peer} is {state} (used+skipped)"
        for peer, state in row.links.items()
        if not state.startswith("up")
    ]
    if row.refused or row.late:
        notes.append(f"{row.name}: {row.refused} uploads refused, {row.late} late")
    return notes + [f"{row.name}: {warning}" for warning in row.warnings]
