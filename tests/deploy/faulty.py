"""A deployment of real processes, to be harmed: edges a, b and c, and a way from a to b to cut."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import toy
from harness import as_toml, content, free_ports, import_path
from proxy import Mode, Proxy

from sdfeel.deploy.model.store import write_safetensors
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.operate.launch import Launch, prepare


def write_deployment(folder: Path, edges: int = 3, **options: object) -> tuple[Path, dict]:
    """So many edges with a client each, whose periods take .05 s at least."""
    table = content((1,) * edges, local={"options": {"delay": 0.05}}, **options)
    file = folder / "deployment.toml"
    file.write_text(as_toml(table))
    write_safetensors(folder / "initial.safetensors", as_vector(np.zeros(toy.SIZE)), {})
    return file, table


class Way:
    """From a to b, and nobody else's: through a proxy in a thread of its own."""

    def __init__(self, port: int, target: int) -> None:
        self._proxy = Proxy(port, target)
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._is_open.wait()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with self._proxy:
            self._is_open.set()
            await self._over.wait()
        await asyncio.sleep(0)  # what was aborted is closed in the next turn

    def set(self, mode: Mode) -> None:
        self._loop.call_soon_threadsafe(self._proxy.set, mode)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()


class Nodes(Launch):
    """All of them; a has a file of its own, in which b's address is that of the proxy."""

    own: Path

    def start(self, role: str, name: str) -> None:
        common, self.file = self.file, self.own if name == "a" else self.file
        super().start(role, name)
        self.file = common


@contextmanager
def faulty(folder: Path, **options: object) -> Iterator[tuple[Path, Nodes, Way]]:
    """The deployment file, its nodes and the way from a to b."""
    file, table = write_deployment(folder, **{"periods": 100_000, **options})
    (port,) = free_ports(1)
    target = int(table["edges"][1]["address"].rpartition(":")[2])
    Nodes.own = folder / "of-a.toml"
    seen_by_a = [*table["edges"]]
    seen_by_a[1] = {**seen_by_a[1], "address": f"127.0.0.1:{port}"}
    Nodes.own.write_text(as_toml({**table, "edges": seen_by_a}))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = import_path()
    way = Way(port, target)
    try:
        with Nodes(file, prepare(file), folder / "logs") as nodes:
            yield file, nodes, way
    finally:
        way.close()
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
