"""What `sdfeel status` shows: every edge, its period, clients, links and losses in one table."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import grpc
from pydantic import ConfigDict, TypeAdapter
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.facts.stream import Noted
from sdfeel.deploy.model.store import Store
from sdfeel.deploy.operate.asking import operator, printable
from sdfeel.deploy.operate.edge_status import PHASES, SCHEMA, EdgeStatus, read_row
from sdfeel.deploy.operate.export import state_folder
from sdfeel.deploy.operate.notes import read_facts
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.wire.grpc_transport import call_status, open_channel

__all__ = [
    "EdgeConnection",
    "Look",
    "ask",
    "exit_status",
    "is_well",
    "or_ended",
    "schema",
    "status_table",
]


STUCK = ("paused", "no-clients")


class Look(NamedTuple):
    """An answer of an edge.

    facts  those that are new
    life   another number each time that the edge is started; 0 if it did not answer
    ahead  seconds by which its clock is ahead of ours, as far as the answer's way allows to tell
    """

    row: EdgeStatus
    facts: list[Noted]
    life: int
    ahead: float


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
    connection = EdgeConnection(deployment, credentials, edge)
    try:
        return (await connection.look(timeout)).row
    finally:
        await connection.close()


class EdgeConnection:
    """To one edge, for who asks again and again: it stands until something is wrong with it."""

    def __init__(self, deployment: Deployment, credentials: Credentials, edge: str) -> None:
        self._deployment, self._credentials, self.edge = deployment, credentials, edge
        self._channel: grpc.aio.Channel | None = None
        self._stamp = credentials.stamp
        self._life = self._since = 0

    async def look(self, timeout: float) -> Look:
        """Ask for the status and for the facts that are new since the last look."""
        if self._stamp != self._credentials.stamp:  # renewed
            await self.close()
        if self._channel is None:
            self._channel = open_channel(self._deployment, self._credentials, self.edge)
            self._stamp = self._credentials.stamp
        look = await self._answer(self._channel, timeout)
        if look.row.problem:
            await self.close()  # gRPC would wait before it dials again
        return look

    async def _answer(self, channel: grpc.aio.Channel, timeout: float) -> Look:
        nonce = self._credentials.challenge()
        request = v1.StatusRequest(nonce=nonce, life=self._life, since=self._since)
        start = time.time()
        try:
            reply: v1.StatusReply = await call_status(channel, timeout, request)
            self._credentials.check_edge(self.edge, reply, nonce)
        except grpc.aio.AioRpcError as problem:
            # What is behind an UNAVAILABLE stands at the end of gRPC's sentence.
            details = printable((problem.details() or "").rpartition("last error: ")[2])
            return _silent(self.edge, _cause(problem), f"{problem.code().name}: {details}")
        except Refused as refusal:
            return _silent(self.edge, "untrusted", refusal.reason)
        return self.read(reply, (start + time.time()) / 2)

    def read(self, reply: v1.StatusReply, now: float) -> Look:
        """Return what an answer says that was given at `now` by our clock."""
        if reply.life != self._life:
            self._life, self._since = reply.life, 0
        facts = read_facts(reply.facts, self._since)
        self._since = max((note.number for note in facts), default=self._since)
        ahead = reply.now - now if reply.now and math.isfinite(reply.now) else 0.0
        return Look(read_row(self.edge, reply), facts, reply.life, ahead)

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _cause(problem: grpc.aio.AioRpcError) -> str:
    if problem.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "timeout"
    if "Connection refused" in (problem.details() or ""):  # words of the system, which has no code
        return "nothing-listens"
    return "unreachable"


def _silent(edge: str, cause: str, problem: str) -> Look:
    row = EdgeStatus(edge, problem=problem, cause=cause, phase="no-answer")
    return Look(row, [], 0, 0.0)


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
    return replace(row, problem="", cause="", phase="finished", period=done, periods=periods)


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
    up = sum(link.up for link in row.links.values())
    is_running = row.phase != "finished" or row.answers or bool(row.links)
    return (
        row.name,
        f"{row.period}/{row.periods}",
        row.phase,
        f"{len(row.clients)}/{row.expected}" if is_running else "-",
        f"{up}/{len(row.links)}" if is_running else "-",
        _cell(row.loss, row.claimed("train_loss", "batch_loss"), ".3g"),
        _cell(row.accuracy, row.claimed("train_accuracy"), ".1%"),
        f"{row.seconds_per_period:.2f}" if is_running else "-",
        f"{row.disagreement:.0e}" if is_running else "-",
    )


def _cell(measured: float | None, claimed: float | None, form: str) -> str:
    """Return a measure of the edge; without one, in brackets, what its clients say."""
    if measured is not None:
        return f"{measured:{form}}"
    return "-" if claimed is None else f"({claimed:{form}})"


def _notes(row: EdgeStatus) -> list[str]:
    if row.problem:
        on_disk = f" (its checkpoints here reach period {row.period})" if row.period else ""
        return [f"{row.name}: {row.problem}{on_disk}"]
    notes = [
        f"{row.name}: link to {peer} is {link} (used+skipped)"
        for peer, link in row.links.items()
        if not link.up
    ]
    if row.phase == "no-clients":
        notes.append(f"{row.name}: none of its {row.expected} clients is connected; it waits")
    if row.refused or row.late:
        notes.append(f"{row.name}: {row.refused} uploads refused, {row.late} late")
    return notes + [f"{row.name}: {warning.text}" for warning in row.warnings]
