"""The two programs, from a deployment file to their end: what the command line calls."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import resource
import sys
from pathlib import Path
from typing import Any

from sdfeel.deploy.config import Deployment, load_deployment, parse_deployment
from sdfeel.deploy.facts.logs import LogFile
from sdfeel.deploy.operate.ending import run_until_signal
from sdfeel.deploy.trust.handshakes import Handshakes, trace_handshakes
from sdfeel.toml import merge

__all__ = ["run_client", "run_edge"]


def _few_arenas() -> None:
    """Keeps glibc from holding on to freed memory once for every thread (its M_ARENA_MAX)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(-8, 2)


def _many_descriptors(connections: int) -> None:
    """Raises the limit of open files to what an edge may need, if the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else soft
    wanted = min(4 * connections + 1024, max(most, soft))
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run_edge(
    file: Path,
    name: str,
    state: Path | None = None,
    log: LogFile | None = None,
    out: Path | None = None,
    holdout: str = "",
    stay: bool = False,
) -> int:
    """`sdfeel edge`. Exit status 0 when training is over, 130 when stopped before."""
    deployment = load_deployment(file)
    if not deployment.security.plaintext:
        trace_handshakes()
    from sdfeel.deploy.edge.edge import EdgeServer
    from sdfeel.deploy.operate.export import state_folder
    from sdfeel.deploy.operate.used_file import UsedFile, used_file

    def with_holdout(deployment: Deployment) -> Deployment:
        if not holdout:
            return deployment
        evaluation = deployment.evaluation.model_copy(update={"holdout": holdout})
        return deployment.model_copy(update={"evaluation": evaluation})

    _few_arenas()
    _many_descriptors(deployment.limits.connections)

    folder = state_folder(deployment, name, state)
    begin = used_file(file, deployment, name, folder)

    async def program() -> None:
        used = begin
        while not await life(used):
            used = used.go_over()

    async def life(used: UsedFile) -> bool:
        """Whether that was all, or all edges have a newer file by now."""
        deployment_now, newer, has_begun = with_holdout(used.deployment), used.newer, used.has_begun
        edge = EdgeServer(
            deployment_now, name, folder, log, out=out, newer=newer, has_begun=has_begun
        )
        handshakes = Handshakes(edge.handshake_refused)
        if not edge.credentials.plaintext:
            handshakes.start()
        try:
            await edge.start()
            used.keep()
            try:
                await edge.run()
                if edge.files.is_over:
                    return False
                if stay:
                    await asyncio.Event().wait()
            except asyncio.CancelledError:
                if edge.done < edge.topology.plan(name):
                    raise
                # Training is over: a signal is no interruption.
            finally:
                await edge.stop()
        finally:
            handshakes.stop()
        return True

    return run_until_signal(program(), log, name)


def run_client(
    file: Path,
    name: str,
    log: LogFile | None = None,
    local: dict[str, Any] | None = None,
    metrics: str = "",
) -> int:
    """`sdfeel client`, with what this machine has in the place of the file's [local] table.

    Args:
        file: The deployment file.
        name: Of the client.
        log: Where its log goes.
        local: What this machine has in the place of the file's [local] table.
        metrics: HOST:PORT on which it answers Prometheus; "": nowhere.

    Returns:
        The exit status.
    """
    from sdfeel.deploy.client.client import ClientProgram
    from sdfeel.deploy.client.trainers import make_trainer
    from sdfeel.deploy.facts.http import serving_metrics

    deployment = load_deployment(file)
    if local:
        table = deployment.model_dump(mode="json", exclude_none=True)
        deployment = parse_deployment(merge(table, {"local": local}), deployment.folder)
    trainer = make_trainer(deployment, name)

    async def program() -> None:
        client = ClientProgram(deployment, name, trainer, log)
        with serving_metrics(metrics, client.metrics, lambda: client.edge is not None):
            await client.run()

    return run_until_signal(program(), log, name)


if __name__ == "__main__":  # the programs alone, without the rest of the command line
    role, path, node, *folder = sys.argv[1:]
    if role == "edge":
        sys.exit(run_edge(Path(path), node, log=LogFile(), out=Path(folder[0]) if folder else None))
    sys.exit(run_client(Path(path), node, log=LogFile()))
