"""What `sdfeel status` shows: every edge, its period, clients and links in one table."""

from __future__ import annotations

import asyncio
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import grpc
from rich.table import Table

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.link import rpc
from sdfeel.deploy.link.dialler import open_channel
from sdfeel.deploy.model.wire import Refused
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.trust.provision import OPERATOR

__all__ = ["EdgeStatus", "ask", "status_table"]


@dataclass(frozen=True)
class EdgeStatus:
    """One edge as it answered; `problem` says why it did not."""

    edge: str
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
    warnings: tuple[str, ...] = ()
    certificate_hours: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


async def ask(deployment: Deployment, timeout: float = 2.0) -> list[EdgeStatus]:
    """All edges at once, with the operator's certificate."""
    credentials = Credentials(deployment, "operator", OPERATOR)
    names = [edge.name for edge in deployment.edges]
    return list(await asyncio.gather(*(_one(deployment, credentials, n, timeout) for n in names)))


async def _one(
    deployment: Deployment, credentials: Credentials, edge: str, timeout: float
) -> EdgeStatus:
    channel = open_channel(deployment, credentials, edge)
    nonce = credentials.challenge()
    try:
        reply: v1.StatusReply = await rpc.call_status(channel, timeout, nonce)
        credentials.check_edge(edge, reply, nonce)
    except grpc.aio.AioRpcError as problem:
        return EdgeStatus(edge, problem=f"{problem.code().name}: {problem.details()}")
    except Refused as refusal:
        return EdgeStatus(edge, problem=refusal.reason)
    finally:
        await channel.close()
    links = {
        link.peer: ("up" if link.up else "down") + f" {link.used}+{link.skipped}"
        for link in reply.links
    }
    return EdgeStatus(
        edge=edge,
        period=reply.period,
        periods=reply.periods,
        phase=reply.phase,
        ready=reply.ready,
        clients=tuple(reply.clients),
        expected=reply.expected,
        links=links,
        seconds_per_period=reply.seconds_per_period,
        disagreement=reply.disagreement,
        refused=reply.refused,
        late=reply.late,
        warnings=tuple(reply.warnings),
        certificate_hours=hours if math.isfinite(hours := reply.certificate_hours) else None,
    )


def status_table(rows: list[EdgeStatus], title: str) -> Table:
    """Links read as `peer up USED+SKIPPED`."""
    table = Table(
        "edge",
        "period",
        "phase",
        "clients",
        "links: used+skipped",
        "s/period",
        "disagreement",
        "refused",
        "late",
        title=title,
    )
    for row in rows:
        if row.problem:
            table.add_row(row.edge, "-", f"[red]{row.problem[:60]}[/red]")
            continue
        links = ", ".join(
            f"{peer} {state}" if state.startswith("up") else f"[red]{peer} {state}[/red]"
            for peer, state in row.links.items()
        )
        table.add_row(
            row.edge,
            f"{row.period}/{row.periods}",
            row.phase,
            f"{len(row.clients)}/{row.expected}",
            links,
            f"{row.seconds_per_period:.3f}",
            f"{row.disagreement:.2e}",
            str(row.refused),
            str(row.late),
        )
    return table
