"""A deployment as the page shows it: its edges are asked again and again, as by `sdfeel status`."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdfeel.errors import SdfeelError
from sdfeel.page.runs import finite

if TYPE_CHECKING:
    from sdfeel.deploy.operate.edge_status import EdgeStatus
    from sdfeel.deploy.operate.status import EdgeConnection, Look
    from sdfeel.page.observed import Observed
    from sdfeel.page.prediction import Prediction

__all__ = ["Watcher"]

# What goes wrong is seen within both, and on the page within one of its looks more (main.js).
EVERY = 0.4  # seconds between an edge's answer and the next question to it
TIMEOUT = 1.0  # for an edge to answer
RETOLD = 5.0  # seconds after which stories are told anew also where nothing has happened
STORIES = 200  # that are shown


class Watcher:
    """Asks from a thread of its own, with the operator's certificate; started by `start`.

    state       folder with the state folders of edges that have ended here, as for `sdfeel status`
    prediction  what the clock says of it
    """

    def __init__(
        self, file: Path, state: Path | None = None, prediction: Prediction | None = None
    ) -> None:
        self.file, self.state, self.prediction = file, state, prediction
        self._lock = threading.Lock()
        self._ending, self._has_asked = threading.Event(), threading.Event()
        self._shown: dict[str, Any] = {"problem": "The edges have not been asked yet.", "edges": []}
        self._observed: Observed | None = None
        self._told: tuple[int, dict[str, Any]] = (-1, {})
        self._thread = threading.Thread(target=self._run, name="deployment", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=2 * TIMEOUT)

    def wait(self) -> None:
        """Until all edges have been asked once, or why they cannot be is known."""
        self._has_asked.wait(timeout=2 * TIMEOUT)

    def shown(self) -> dict[str, Any]:
        """The last look, and what has happened."""
        with self._lock:
            return finite({**self._shown, **self._happened()})  # type: ignore[no-any-return]

    def _happened(self) -> dict[str, Any]:
        """Return the stories, told again where something has happened or time may have."""
        if self._observed is None:
            return {"incidents": [], "not_taken": [], "curves": {}}
        from sdfeel.page.refusal_stories import not_taken
        from sdfeel.page.stories import stories

        now = time.time()
        mark = hash((self._observed.changes, now // RETOLD))
        if mark != self._told[0]:
            seen, homes = self._observed, self._shown.get("homes", {})
            tales = stories(seen.seen, seen.silences, seen.skews, homes, now)
            incidents = [story.as_dict() for story in tales[-STORIES:]]
            self._told = mark, {"incidents": incidents, "not_taken": not_taken(seen.seen)}
        return {**self._told[1], "curves": self._observed.curves}

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                asyncio.run(self._follow())
            except* Exception as problems:  # a certificate that is not there yet, say
                with self._lock:
                    self._shown = {"problem": _in_words(_first(problems)), "edges": []}
                self._has_asked.set()
            self._ending.wait(EVERY)

    async def _follow(self) -> None:
        from sdfeel.deploy.config import load_deployment
        from sdfeel.deploy.operate.asking import operator
        from sdfeel.deploy.operate.status import EdgeConnection, or_ended
        from sdfeel.deploy.topology import Topology
        from sdfeel.page.observed import Observed

        deployment = load_deployment(self.file)
        homes: dict[str, list[str]] = {edge.name: [] for edge in deployment.edges}
        for client in deployment.clients:
            homes[client.edge].append(client.name)
        topology = Topology(deployment)
        names = [edge.name for edge in deployment.edges]
        links = [[names[a], names[b]] for a, b in topology.at(0).network.graph.edges()]
        with self._lock:
            self._observed = self._observed or Observed(edges=len(names))
        clock = None if self.prediction is None else self.prediction.as_dict()
        about: dict[str, Any] = {
            "name": deployment.name,
            "links": links,
            "homes": homes,
            "problem": "",
        }
        about["prediction"] = clock
        credentials = operator(deployment)
        rows: dict[str, EdgeStatus | None] = dict.fromkeys(names)

        async def ask(line: EdgeConnection) -> None:
            """One edge, again and again: a frozen one must not keep the others' news waiting."""
            try:
                while not self._ending.is_set():
                    look = await line.look(TIMEOUT)
                    row = or_ended(deployment, look.row, self.state)
                    rows[line.edge] = _with_last_words(row, rows[line.edge])
                    known = [row for row in rows.values() if row is not None]
                    self._take(look._replace(row=row), known, about)
                    await asyncio.sleep(EVERY)
                    if credentials.has_expired:
                        operator(deployment)  # says so
            finally:
                await line.close()

        async with asyncio.TaskGroup() as asking:
            for name in names:
                asking.create_task(ask(EdgeConnection(deployment, credentials, name)))

    def _take(self, look: Look, rows: list[EdgeStatus], about: dict[str, Any]) -> None:
        """Note a look at one edge, and show it once all have been looked at."""
        with self._lock:
            assert self._observed is not None  # noqa: S101 - `_follow` made it
            self._observed.take(look, time.time())
            if len(rows) < len(about["homes"]):
                return
            edges = [row.as_dict() for row in rows]
            self._shown = {**about, "edges": edges, "asked": time.time()}
        self._has_asked.set()


def _with_last_words(row: EdgeStatus, before: EdgeStatus | None) -> EdgeStatus:
    """Of an edge that has ended its disk says how far it came; the rest is as it last told."""
    has_ended = row.phase == "finished" and not row.expected
    if not has_ended or before is None or before.problem:
        return row
    return replace(before, phase=row.phase, period=row.period)


def _in_words(problem: BaseException) -> str:
    if isinstance(problem, SdfeelError):
        return str(problem)
    kind = type(problem).__name__
    return f"The edges cannot be asked: {problem or kind} ({kind}). They are asked again."


def _first(problems: BaseExceptionGroup[Exception]) -> BaseException:
    problem = problems.exceptions[0]
    return _first(problem) if isinstance(problem, BaseExceptionGroup) else problem
