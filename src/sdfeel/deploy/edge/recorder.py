"""The run folder of an edge, as the simulator writes it, and its looks at a holdout.

Both go on beside the periods, which never wait for them; neither can end a node.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.results import Results, Row
from sdfeel.deploy.methods import averager_table
from sdfeel.deploy.model.files import ModelFile
from sdfeel.deploy.model.state_dict import write_state_dict
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.node import Node
from sdfeel.deploy.topology import Topology

if TYPE_CHECKING:
    from sdfeel.records.folder import RunFolder

__all__ = ["Recorder"]

PAUSE = 0.5  # seconds between two writes: a row a period would be many
WAITING = 8  # models to be looked at; if looking takes too long, the oldest is left out


class Recorder:
    """Started before the periods, finished after them.

    out     the run folder, or None
    model   what the edge holds now
    first   what it began with: names, shapes and what is not trained
    """

    def __init__(
        self,
        node: Node,
        results: Results,
        out: Path | None,
        model: Callable[[], Vector],
        first: ModelFile,
    ) -> None:
        self._topology, self._edge, self._tell = node.topology, node.name, node.tell
        self._results = results
        self._out, self._model, self._first = out, model, first
        self._folder: RunFolder | None = None
        self._evaluate: Callable[[Any], dict[str, float]] | None = None
        self._due: deque[tuple[int, Vector]] = deque(maxlen=WAITING)
        self._changed = asyncio.Event()
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, done: int) -> None:
        """Opens what there is to open; InputError if a folder or a function is not right."""
        if self._out is not None:
            self._results.resume(await asyncio.to_thread(self._open, self._out), done)
        if self._topology.deployment.evaluation.holdout:
            self._evaluate = await asyncio.to_thread(_evaluator, self._topology, self._edge)
        if self._folder is not None or self._evaluate is not None:
            self._results.on_begin = self._begin
            self._results.on_change = self._changed.set
            self._task = asyncio.get_running_loop().create_task(self._run())
            if done == 0:
                self._results.begin(0)

    def _open(self, path: Path) -> list[Row]:
        # pandas comes with it, which an edge has no other use for: only if it is asked for.
        from sdfeel.records.folder import RunFolder
        from sdfeel.records.reading import read_run

        self._folder = RunFolder(path, "")
        self._folder.create(_config(self._topology.deployment, self._edge), resume=True)
        if not (path / "metrics.csv").exists():
            return []
        table = read_run(path).metrics
        return [{str(k): v for k, v in row.dropna().items()} for _, row in table.iterrows()]

    def _begin(self, iteration: int) -> None:
        """A new row: of the model that the edge holds at this moment."""
        if self._evaluate is not None:
            self._due.append((iteration, self._model()))
        self._changed.set()

    async def _run(self) -> None:
        while not self._ending.is_set():
            await self._changed.wait()
            self._changed.clear()
            await self._look()
            await self._write()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await self._ending.wait()

    async def _look(self) -> None:
        while self._evaluate is not None and self._due:
            iteration, model = self._due.popleft()
            try:
                values = await asyncio.to_thread(model.array)
                measures = await asyncio.to_thread(self._evaluate, values)
            except Exception as problem:
                # Somebody else's code on somebody else's data: training goes on without it.
                reason = f"{type(problem).__name__}: {problem}"
                self._tell(facts.EvaluationFailed(reason=reason))
                self._evaluate = None
                return
            self._results.evaluated(iteration, measures)

    async def _write(self) -> None:
        if self._folder is None:
            return
        try:
            await asyncio.to_thread(self._folder.write_rows, self._results.in_order)
        except OSError as problem:
            self._tell(facts.RecordProblem(reason=str(problem)))

    async def finish(self, done: int) -> None:
        """The last look, the last rows, models and summary.

        Whoever stopped training before its end does not want to wait for another look.
        """
        if self._task is None:
            return
        self._ending.set()
        self._changed.set()
        await self._task
        self._task = None
        if done == self._topology.plan(self._edge):
            await self._look()
        await self._write()
        if self._folder is not None:
            try:
                await asyncio.to_thread(self._conclude, self._folder, done)
            except OSError as problem:
                self._tell(facts.RecordProblem(reason=str(problem)))

    def _conclude(self, folder: RunFolder, done: int) -> None:
        notes = {"deployment": self._topology.deployment.name, "edge": self._edge}
        write_state_dict(folder.path / "model.safetensors", self._first, self._model(), notes)
        last = self._results.last
        rows = self._results.in_order
        summary = {
            "scheme": "sd-feel",
            "edge": self._edge,
            "iterations": done * self._topology.tau1,
            "seconds": rows[-1]["seconds"] if rows else 0.0,
            "loss": last.get("test_loss"),
            "test_loss": last.get("test_loss"),
            "accuracy": last.get("test_accuracy"),
            "engine": "deployment",
            "interrupted": done < self._topology.plan(self._edge),
        }
        folder.write_json("summary.json", summary)


def _evaluator(topology: Topology, edge: str) -> Callable[[Any], dict[str, float]]:
    from sdfeel.deploy.client.measuring import evaluator

    return evaluator(topology.deployment, edge)


def _config(deployment: Deployment, edge: str) -> dict[str, Any]:
    """run.json: what the simulator calls things, and the rest of the file."""
    schedule = deployment.schedule
    return {
        "title": deployment.name,
        "scheme": "sd-feel",
        "edge": edge,
        "engine": "deployment",
        "averager": averager_table(schedule.averager),
        "pace": deployment.model_dump(mode="json")["pace"],
        "averaging_rule": deployment.averaging.model_dump(),
        "steps": schedule.iterations,
        "lr": deployment.local.lr,
        "batch_size": deployment.local.batch_size,
        "seed": deployment.seed,
        "schedule": {"tau1": schedule.tau1, "tau2": schedule.tau2, "alpha": schedule.alpha},
        "network": {
            "servers": len(deployment.edges),
            "graph": deployment.graph.kind if deployment.graph.links is None else "links",
            "clients_per_server": [
                sum(client.edge == server.name for client in deployment.clients)
                for server in deployment.edges
            ],
        },
        "evaluation": {"every": deployment.evaluate_every},
    }
