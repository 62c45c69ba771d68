"""`sdfeel status --watch`: the table again and again."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from rich.console import Console
from rich.live import Live

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.operate.edge_status import EdgeStatus
from sdfeel.deploy.operate.status import ask, status_table

__all__ = ["follow"]


async def follow(
    deployment: Deployment, timeout: float, every: float, state: Path | None = None
) -> list[EdgeStatus]:
    """Until every edge has finished, or somebody has seen enough; what was seen last."""
    rows: list[EdgeStatus] = []
    console = Console()
    with contextlib.suppress(asyncio.CancelledError), Live(console=console, screen=False) as live:
        while not rows or not all(row.phase == "finished" for row in rows):
            if rows:
                await asyncio.sleep(every)
            rows = await ask(deployment, timeout, state)
            live.update(status_table(rows, deployment.name), refresh=True)
    return rows
