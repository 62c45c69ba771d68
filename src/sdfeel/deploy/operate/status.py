"""What `sdfeel status` shows: every edge, its period, clients, links and losses in one table."""

from __future__ import annotations

import asyncio
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import grpc
from pydantic import ConfigDict, TypeAdapter
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

__all__ = [
    "PHASES",
    "EdgeConnection",
    "EdgeStatus",
    "ask",
    "exit_status",
    "is_well",
    "or_ended",
    "schema",
    "status_table",
]


PHASES = {
    "starting": "it reads its checkpoint and opens its port",
    "gathering": "it waits, once, for its neighbours, or without rounds for a first client",
    "adopting": "it has no checkpoint and takes over a neighbour's model",
    "collecting": "its clients train, and it waits for their models",
    "exchanging": "it exchanges models with its neighbours",
    "no-clients": "it waits for a client: no period goes by without one",
    "paused": "it waits for its disk, which takes no checkpoint",
    "finished": "all its periods are done",
    "no-answer": "it does not answer, and no checkpoint here says that it has finished",
}
SCHEMA = ConfigDict(use_attribute_docstrings=True, json_schema_serialization_defaults_required=True)
STUCK = ("paused", "no-clients")


@dataclass(frozen=True)
class EdgeStatus:
    """One edge as it answered, or why it did not."""

    __pydantic_config__: ClassVar[ConfigDict] = SCHEMA

    name: str
    """The edge, as the deployment file calls it."""
    problem: str = ""
    """Why it did not answer; empty if it did, or if it has finished."""
    period: int = 0
    """Periods (tau1 iterations) that are finished and on its disk."""
    periods: int = 0
    """Periods of the whole training."""
    phase: str = ""
    """What it does."""
    ready: bool = False
    """Whether a client or a neighbour is connected."""
    clients: tuple[str, ...] = ()
    """Connected clients, guests among them."""
    expected: int = 0
    """Clients that are at home there, by its file."""
    links: dict[str, str] = field(default_factory=dict)
    """By neighbour: "up" or "down", then exchanges used+skipped."""
    seconds_per_period: float = 0.0
    """Length of the last period."""
    disagreement: float = 0.0
    """Largest relative distance to a neighbour's model at the last exchange."""
    refused: int = 0
    """Uploads refused since it was started."""
    late: int = 0
    """Uploads that came late since it was started."""
    loss: float | None = None
    """Training loss that clients measured, the last one; null before there is one."""
    accuracy: float | None = None
    """On its holdout; without one, that of its clients on their own data."""
    measures: dict[str, float] = field(default_factory=dict)
    """All losses and metrics, the last of each."""
    warnings: tuple[str, ...] = ()
    """What an operator should look at."""
    certificate_hours: float | None = None
    """Until its certificate ends; null in plain text."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of its last round by what they went into."""
    memory: int = 0
    """Bytes of its process; 0 if it does not tell."""
    link_disagreement: dict[str, float] = field(default_factory=dict)
    """By neighbour: relative distance to its model at the last exchange."""
    pace: str = ""
    """Name of the pace: synchronous, asynchronous."""
    steps: float | None = None
    """Without rounds: mean steps of its clients in the last turn."""
    link_bytes: dict[str, dict[str, int]] = field(default_factory=dict)
    """By neighbour: bytes of models, "sent" and "received", since it was started."""
    answers: bool = False
    """Whether it answered now; an edge that has finished may be read from its checkpoints."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Report:
    """What `sdfeel status --json` prints."""

    __pydantic_config__: ClassVar[ConfigDict] = SCHEMA

    deployment: str
    """The deployment's name."""
    edges: tuple[EdgeStatus, ...]
    """One for each edge of the file, in its order."""


def schema() -> dict[str, Any]:
    """The JSON schema of what `sdfeel status --json` prints."""
    made = TypeAdapter(Report).json_schema(mode="serialization")
    phase = made["$defs"]["EdgeStatus"]["properties"]["phase"]
    known = [{"const": name, "description": what} for name, what in PHASES.items()]
    phase |= {"anyOf": [*known, {"type": "string", "description": "of an edge of a later version"}]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def is_well(rows: list[EdgeStatus]) -> bool:
    """Whether every edge is running or has finished."""
    return exit_status(rows) == 0


def exit_status(rows: list[EdgeStatus]) -> int:
    """Return what `sdfeel status` ends with.

    Returns:
        1 if an edge does not answer and is not known to have finished, else 3 if one is paused or
        has no clients, else 0. (2 is a mistake in the file or in the call.)
    """
    if any(row.problem for row in rows):
        return 1
    return 3 if any(row.phase in STUCK for row in rows) else 0


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
            return _silent(self.edge, f"{problem.code().name}: {details}")
        except Refused as refusal:
            return _silent(self.edge, refusal.reason)
        return _row(self.edge, reply)

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _silent(edge: str, problem: str) -> EdgeStatus:
    return EdgeStatus(edge, problem=problem, phase="no-answer")


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
        answers=True,
    )


def _phases(reply: v1.StatusReply) -> dict[str, float]:
    """Only parts that there are, and seconds that can be."""
    told = {phase.name: phase.value for phase in reply.phases}
    found = {name: told[name] for name in PARTS if name in told}
    return {name: s for name, s in found.items() if math.isfinite(s) and s >= 0}


def or_ended(deployment: Deployment, row: EdgeStatus, state: Path | None) -> EdgeStatus:
    """Of an edge that does not answer: how far it came, and whether to its end, if its checkpoints
    lie here.
    """
    if not row.problem:
        return row
    periods = Topology(deployment).plan(row.name)
    folder = state_folder(deployment, row.name, state / row.name if state else None)
    done = max(Store(folder, {}).periods(), default=0)
    if done < periods:
        return replace(row, period=done, periods=periods)
    return replace(row, problem="", phase="finished", period=done, periods=periods)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


COLUMNS = ("edge", "period", "phase", "clients", "links", "loss", "acc.", "s/period", "apart")


def status_table(rows: list[EdgeStatus], title: str) -> RenderableType:
    """For 80 columns. What is not as it should be stands below, a line each."""
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, overflow="fold", justify="left" if name == "edge" else "right")
    for row in rows:
        table.add_row(*(Text(cell, style=_style(row)) for cell in _cells(row)))
    notes = [Text(note, style="red") for row in rows for note in _notes(row)]
    return Group(table, *notes)


def _style(row: EdgeStatus) -> str:
    return "red" if row.problem else "yellow" if row.phase in STUCK else ""


def _cells(row: EdgeStatus) -> tuple[str, ...]:
    if row.problem:
        period = f"{row.period}/{row.periods}" if row.period else "-"
        return (row.name, period, "no answer", *("-" for _ in COLUMNS[3:]))
    up = sum(state.startswith("up") for state in row.links.values())
    is_running = row.phase != "finished" or row.answers or bool(row.links)
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
        on_disk = f" (its checkpoints here reach period {row.period})" if row.period else ""
        return [f"{row.name}: {row.problem}{on_disk}"]
    notes = [
        f"{row.name}: link to {peer} is {state} (used+skipped)"
        for peer, state in row.links.items()
        if not state.startswith("up")
    ]
    if row.phase == "no-clients":
        notes.append(f"{row.name}: none of its {row.expected} clients is connected; it waits")
    if row.refused or row.late:
        notes.append(f"{row.name}: {row.refused} uploads refused, {row.late} late")
    return notes + [f"{row.name}: {warning}" for warning in row.warnings]
