"""A whole deployment on one machine, for a trial: every node a process, one view of them all."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live

from sdfeel.deploy.config import Deployment, load_deployment
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.operate.export import export
from sdfeel.deploy.operate.status import EdgeStatus, ask, status_table
from sdfeel.deploy.trust.provision import provision
from sdfeel.errors import InputError, RunError

__all__ = ["Launch", "final_model", "launch", "prepare"]

REFRESH = 0.5


def prepare(file: Path, fresh: bool = False) -> Deployment:
    """Makes what is missing beside the file: certificates, the first model; `fresh`: no state."""
    deployment = load_deployment(file)
    if fresh:
        shutil.rmtree(deployment.path(Path("state")), ignore_errors=True)
    if not deployment.security.plaintext:
        provision(deployment)
    if not deployment.path(deployment.model.initial).exists():
        if not deployment.local.model:
            raise InputError(
                "model.initial",
                str(deployment.model.initial),
                "is not there, and without local.model it cannot be made",
            )
        from sdfeel.deploy.client.torch_trainer import write_initial

        write_initial(deployment)
    return deployment


class Launch:
    """The nodes of a deployment as child processes; leaving the context ends those that run."""

    def __init__(
        self, file: Path, deployment: Deployment, logs: Path, out: Path | None = None
    ) -> None:
        self.file, self.deployment, self.logs, self.out = file, deployment, logs, out
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Launch:
        self.logs.mkdir(parents=True, exist_ok=True)
        try:
            for edge in self.deployment.edges:
                self.start("edge", edge.name)
            for client in self.deployment.clients:
                self.start("client", client.name)
        except BaseException:  # also Ctrl-C: those who were started do not stay
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """Ends every node that is still there."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, role: str, name: str) -> None:
        """One node, its log in NAME.jsonl and what else it says in NAME.err."""
        with (
            (self.logs / f"{name}.jsonl").open("ab") as log,
            (self.logs / f"{name}.err").open("ab") as other,
        ):
            command = [
                sys.executable,
                "-m",
                "sdfeel.deploy.operate.programs",
                role,
                str(self.file),
                name,
            ]
            if role == "edge" and self.out is not None:
                command.append(str(self.out / name))
            self.processes[name] = subprocess.Popen(  # noqa: S603 - our own program
                command, stdout=log, stderr=other
            )

    @property
    def failed(self) -> list[str]:
        return [name for name, p in self.processes.items() if p.poll() not in (None, 0)]

    @property
    def is_over(self) -> bool:
        return all(process.poll() is not None for process in self.processes.values())

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The log of a node."""
        text = (self.logs / f"{name}.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def launch(
    file: Path,
    logs: Path | None = None,
    fresh: bool = False,
    on_status: Callable[[list[EdgeStatus]], None] = lambda _: None,
    out: Path | None = None,
) -> Launch:
    """`sdfeel launch`: runs to the end with one live table. Raises RunError if a node failed."""
    deployment = prepare(file, fresh)
    folder = logs or deployment.path(Path("logs"))
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    console = Console(stderr=True)
    with _noted_end() as asked, Launch(file, deployment, folder, out) as nodes:
        asyncio.run(_watch(nodes, console, on_status, asked))
    if asked:
        sys.exit(128 + signal.SIGTERM)
    if nodes.failed:
        raise RunError(
            f"{', '.join(nodes.failed)} failed; see {folder / (nodes.failed[0] + '.err')}"
        )
    return nodes


@contextmanager
def _noted_end() -> Iterator[list[int]]:
    """While inside, SIGTERM is noted, and not by an exception: a node that is just being started
    would be left behind, and gRPC would not survive it.
    """
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, before)


async def _watch(
    nodes: Launch,
    console: Console,
    on_status: Callable[[list[EdgeStatus]], None],
    asked: Sequence[int],
) -> None:
    """A table that refreshes on a terminal; elsewhere a line now and then. Until all is over, a
    node has failed, or somebody `asked` for the end.
    """
    title = f"{nodes.deployment.name}: {len(nodes.processes)} nodes on this machine"
    last = 0.0
    known: dict[str, EdgeStatus] = {}
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        while not nodes.is_over and not asked:
            rows = await ask(nodes.deployment, timeout=1.0)
            rows = [_or_last(nodes, row, known) for row in rows]
            on_status(rows)
            if console.is_terminal:
                live.update(status_table(rows, title))
            elif time.monotonic() - last > 5:
                last = time.monotonic()
                console.print("  ".join(f"{r.name} {r.period}/{r.periods} {r.phase}" for r in rows))
            if nodes.failed:
                return
            await asyncio.sleep(REFRESH)


def _or_last(nodes: Launch, row: EdgeStatus, known: dict[str, EdgeStatus]) -> EdgeStatus:
    """An edge that does not answer is starting, or it has ended: then its last word stands."""
    if not row.problem:
        known[row.name] = row
        return row
    if nodes.processes[row.name].poll() is not None and row.name in known:
        return replace(known[row.name], phase="ended")
    return (
        replace(row, phase="not answering")
        if row.name in known
        else EdgeStatus(row.name, phase="starting")
    )


def final_model(deployment: Deployment, state: Path | None = None) -> tuple[Vector, Path]:
    """The weighted mean u_K of all edges' last checkpoints, also written beside the file."""
    state = state or deployment.path(Path("state"))
    made = export(deployment, deployment.path(Path("final.safetensors")), state=state)
    return made.model, made.path
