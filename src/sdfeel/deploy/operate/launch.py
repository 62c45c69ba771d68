"""A whole deployment on one machine, for a trial: every node a process, one view of them all."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from sdfeel.deploy.config import Deployment, load_deployment
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.operate.asking import printable
from sdfeel.deploy.operate.audit import provision_and_record
from sdfeel.deploy.operate.edge_status import EdgeStatus
from sdfeel.deploy.operate.export import export
from sdfeel.deploy.operate.status import ask, status_table
from sdfeel.errors import InputError, RunError, closest

__all__ = ["Kill", "Launch", "final_model", "launch", "prepare", "run_nodes"]

REFRESH = 0.5  # seconds between two looks
LINE_EVERY = 5.0  # without a terminal
RESTART = 1.0  # seconds from a kill to the new start
FAREWELL = 5.0  # for clients, once no edge is left to work for
LONGEST = 160  # characters of what a node said last


@dataclass(frozen=True)
class Kill:
    """A kill -9 of one node, `at` seconds after the start of all."""

    name: str
    at: float

    @classmethod
    def parse(cls, text: str, deployment: Deployment) -> Kill:
        """Read NAME@SECONDS; InputError if there is no such node, or no such second."""
        name, _, second = text.rpartition("@")
        names = [edge.name for edge in deployment.edges]
        names += [client.name for client in deployment.clients]
        if name not in names:
            remedy = f"NAME@SECONDS, such as {names[0]}@10; {closest(name, names)}"
            raise InputError("--kill", text, remedy)
        try:
            at = float(second)
        except ValueError:
            at = -1.0
        if not 0 <= at < 1e9:
            raise InputError("--kill", text, f"seconds after the start, such as {name}@10")
        return cls(name, at)


def prepare(file: Path, fresh: bool = False) -> Deployment:
    """Makes what is missing beside the file: certificates, the first model; `fresh`: no state."""
    deployment = load_deployment(file)
    if fresh:
        shutil.rmtree(deployment.path(Path("state")), ignore_errors=True)
    if not deployment.security.plaintext:
        provision_and_record(deployment)
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
        self.notes: list[str] = []
        self._roles: dict[str, str] = {}
        self._died: dict[str, int] = {}  # by itself, with this status
        self._ended: set[str] = set()  # by us
        self._returning: set[str] = set()
        self._gave_up = ""
        self._began = time.monotonic()

    def __enter__(self) -> Launch:
        self.logs.mkdir(parents=True, exist_ok=True)
        self._began = time.monotonic()
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
        for name, process in self.processes.items():
            if process.poll() is None:
                self._ended.add(name)
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, role: str, name: str) -> None:
        """One node, its log in NAME.jsonl and what else it says in NAME.err."""
        self._roles[name] = role
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
            # In a group of its own: Ctrl-C reaches it once, through us.
            self.processes[name] = subprocess.Popen(  # noqa: S603 - our own program
                command, stdout=log, stderr=other, process_group=0
            )

    async def kill(self, kill: Kill, restart: bool) -> None:
        """Carry out a kill at its second, and start the node again if it is wanted."""
        await asyncio.sleep(self._began + kill.at - time.monotonic())
        process = self.processes[kill.name]
        if process.poll() is not None:
            self._note(f"{kill.name} was to be killed, and is not there any more")
            return
        self._ended.add(kill.name)
        if restart:
            self._returning.add(kill.name)
        process.kill()
        process.wait()
        self._note(f"{kill.name} killed, as asked")
        if restart:
            await asyncio.sleep(RESTART)
            self._ended.discard(kill.name)
            self.start(self._roles[kill.name], kill.name)
            self._returning.discard(kill.name)
            self._note(f"{kill.name} started again")

    def look(self) -> None:
        """Note who has died since the last look; the others go on."""
        for name in self.failed:
            if name not in self._died:
                status = self.processes[name].returncode
                self._died[name] = status
                how = signal.Signals(-status).name if status < 0 else f"status {status}"
                log = self.logs / f"{name}.err"
                about = f"see {log}{self._last_words(log)} and {name}.jsonl beside it"
                self._note(f"{name} died ({how}), the others go on; {about}")

    def _note(self, text: str) -> None:
        self.notes.append(f"{time.monotonic() - self._began:.0f} s: {text}")

    @staticmethod
    def _last_words(log: Path) -> str:
        text = log.read_text(encoding="utf-8", errors="replace")
        words = next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")
        return f" ({printable(words[:LONGEST])})" if words else ""

    @property
    def failed(self) -> list[str]:
        """Nodes that ended by themselves before their end."""
        return [
            name
            for name, process in self.processes.items()
            if process.poll() not in (None, 0) and name not in self._ended
        ]

    @property
    def is_over(self) -> bool:
        is_running = any(process.poll() is None for process in self.processes.values())
        return not is_running and not self._returning

    def useless(self, rows: list[EdgeStatus]) -> str:
        """Why no node that is left can do anything any more; "" if one can."""
        edges, clients = self._running("edge"), self._running("client")
        if self._returning:
            return ""
        if not edges:
            return "no edge is left"
        waiting = [row for row in rows if row.name in edges and row.phase != "finished"]
        return "no client is left" if waiting and not clients else ""

    def give_up(self, rows: list[EdgeStatus]) -> None:
        """Note why nothing more can come, unless all edges that were to finish have."""
        why = self.useless(rows)
        if any(row.phase != "finished" and row.name not in self._ended for row in rows):
            self._gave_up = why
            self._note(f"{why}: stopped before the end")

    def _running(self, role: str) -> set[str]:
        return {
            name
            for name, process in self.processes.items()
            if self._roles[name] == role and process.poll() is None
        }

    @property
    def problem(self) -> str:
        """Which nodes failed, or that nobody was left; "" if all is well."""
        if self.failed:
            return f"{', '.join(self.failed)} failed; see {self.logs / self.failed[0]}.err"
        return self._gave_up and f"{self._gave_up}: stopped before the end"

    def check(self) -> None:
        """Raise RunError if there is a problem."""
        if self.problem:
            raise RunError(self.problem)

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The log of a node."""
        text = (self.logs / f"{name}.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


OnStatus = Callable[[list[EdgeStatus]], None]


def launch(
    file: Path,
    logs: Path | None = None,
    fresh: bool = False,
    on_status: OnStatus = lambda _: None,
    out: Path | None = None,
) -> Launch:
    """All nodes on this machine, to the end, with one live table.

    Raises:
        RunError: A node failed; the others went on without it.
    """
    nodes = run_nodes(file, logs, fresh, on_status, out)
    nodes.check()
    return nodes


def run_nodes(
    file: Path,
    logs: Path | None = None,
    fresh: bool = False,
    on_status: OnStatus = lambda _: None,
    out: Path | None = None,
    kills: Sequence[str] = (),
    restart: bool = False,
) -> Launch:
    """The same, whatever becomes of single nodes: see `Launch.failed`.

    Args:
        file: The deployment file.
        logs: Folder for the nodes' logs (default: logs beside the file).
        fresh: Forget checkpoints and logs of an earlier run.
        on_status: Called with what the edges say, now and then.
        out: Folder for a run folder of each edge.
        kills: NAME@SECONDS, nodes to kill at a second.
        restart: Start killed nodes again.

    Returns:
        The nodes, all of which have ended.
    """
    deployment = load_deployment(file)
    planned = [Kill.parse(text, deployment) for text in kills]
    deployment = prepare(file, fresh)
    folder = logs or deployment.path(Path("logs"))
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    console = Console(stderr=True)
    with _noted_end() as signals, Launch(file, deployment, folder, out) as nodes:
        asyncio.run(_watch(nodes, console, on_status, signals, planned, restart))
    if signals:
        sys.exit(128 + signals[0])
    return nodes


@contextmanager
def _noted_end() -> Iterator[list[int]]:
    """While inside, SIGTERM and SIGHUP are noted, and not by an exception: a node that is just
    being started would be left behind, and gRPC would not survive it.
    """
    signals: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda number, _: signals.append(number)) for number in numbers]
    try:
        yield signals
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


async def _watch(
    nodes: Launch,
    console: Console,
    on_status: OnStatus,
    signals: Sequence[int],
    planned: Sequence[Kill],
    restart: bool,
) -> None:
    """Look at the nodes until all have ended, nothing can come any more, or the end is `asked`."""
    view = _View(nodes, console)
    killing = [asyncio.create_task(nodes.kill(kill, restart)) for kill in planned]
    useful = time.monotonic()
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        while not signals and not nodes.is_over:
            nodes.look()
            rows = view.show(live, await ask(nodes.deployment, timeout=1.0))
            on_status(rows)
            if not nodes.useless(rows):
                useful = time.monotonic()
            elif time.monotonic() - useful > FAREWELL:
                nodes.give_up(rows)
                break
            await asyncio.sleep(REFRESH)
        nodes.look()
        view.show(live, view.rows)
    for task in killing:
        task.cancel()
    await asyncio.gather(*killing, return_exceptions=True)


class _View:
    """A table that refreshes on a terminal; elsewhere a line now and then, and every note."""

    def __init__(self, nodes: Launch, console: Console) -> None:
        self._nodes, self._console = nodes, console
        self._last: dict[str, EdgeStatus] = {}
        self._line, self._told = -math.inf, 0
        self.rows: list[EdgeStatus] = []

    def show(self, live: Live, rows: list[EdgeStatus]) -> list[EdgeStatus]:
        """Show what edges say and what has happened; return the rows as they are shown."""
        self.rows = rows = [self._row(row) for row in rows]
        nodes = self._nodes
        if self._console.is_terminal:
            title = f"{nodes.deployment.name}: {len(nodes.processes)} nodes on this machine"
            live.update(Group(status_table(rows, title), *map(Text, nodes.notes)))
            return rows
        for note in nodes.notes[self._told :]:
            self._console.print(note, soft_wrap=True, markup=False, highlight=False)
        self._told = len(nodes.notes)
        if rows and time.monotonic() - self._line > LINE_EVERY:
            self._line = time.monotonic()
            words = [f"{row.name} {row.period}/{row.periods} {row.phase}" for row in rows]
            self._console.print("  ".join(words), soft_wrap=True)
        return rows

    def _row(self, row: EdgeStatus) -> EdgeStatus:
        """What an edge said last stands while it does not answer."""
        last, status = self._last.get(row.name), self._nodes.processes[row.name].poll()
        if row.answers:
            self._last[row.name] = row
            return row
        if not row.problem or status == 0:
            phase = "finished"
        elif status is None:
            phase = "starting" if last is None else "no-answer"
        else:
            phase = "dead"
        shown = last or EdgeStatus(row.name)
        period = max(shown.period, row.period)
        return replace(shown, phase=phase, period=period, periods=row.periods, answers=False)


def final_model(deployment: Deployment, state: Path | None = None) -> tuple[Vector, Path]:
    """The weighted mean u_K of all edges' last checkpoints, also written beside the file."""
    state = state or deployment.path(Path("state"))
    made = export(deployment, deployment.path(Path("final.safetensors")), state=state)
    return made.model, made.path
