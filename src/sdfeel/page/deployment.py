"""A deployment as the page shows it: its edges are asked again and again, as by `sdfeel status`."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

from sdfeel.errors import SdfeelError
from sdfeel.page.events import Events
from sdfeel.page.runs import finite

__all__ = ["Watcher"]

EVERY = 0.5  # seconds between two looks
TIMEOUT = 1.0  # for an edge to answer


class Watcher:
    """Asks from a thread of its own, with the operator's certificate; started by `start`.

    state  folder with the state folders of edges that have ended here, as `sdfeel status` has it
    """

    def __init__(self, file: Path, state: Path | None = None) -> None:
        self.file, self.state = file, state
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._shown: dict[str, Any] = {"problem": "The edges have not been asked yet.", "edges": []}
        self._events: Events | None = None
        self._thread = threading.Thread(target=self._run, name="deployment", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=2 * TIMEOUT)

    def shown(self) -> dict[str, Any]:
        """The last look, and all events."""
        with self._lock:
            events = [] if self._events is None else [e.as_dict() for e in self._events.list]
            return finite({**self._shown, "events": events})  # type: ignore[no-any-return]

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                asyncio.run(self._follow())
            except SdfeelError as problem:  # a certificate that is not there yet, say
                with self._lock:
                    self._shown = {"problem": str(problem), "edges": []}
            self._ending.wait(EVERY)

    async def _follow(self) -> None:
        from sdfeel.deploy.config import load_deployment
        from sdfeel.deploy.operate.status import ask
        from sdfeel.deploy.topology import Topology

        deployment = load_deployment(self.file)
        homes: dict[str, list[str]] = {edge.name: [] for edge in deployment.edges}
        for client in deployment.clients:
            homes[client.edge].append(client.name)
        topology = Topology(deployment)
        names = [edge.name for edge in deployment.edges]
        links = [[names[a], names[b]] for a, b in topology.network.graph.edges()]
        with self._lock:
            self._events = self._events or Events(homes)
            events = self._events
        about = {"name": deployment.name, "links": links, "homes": homes, "problem": ""}
        while not self._ending.is_set():
            rows = await ask(deployment, TIMEOUT, self.state)
            with self._lock:
                events.take(rows)
                edges = [row.as_dict() for row in rows]
                self._shown = {**about, "edges": edges, "asked": time.time()}
            await asyncio.sleep(EVERY)
