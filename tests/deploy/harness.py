"""A whole deployment inside one test: real gRPC on loopback, all nodes in one event loop."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any
from unittest import mock

import numpy as np
import toy
from swap_audit import audit_swaps, links_on_disk

import sdfeel
from deployment.mean_audit import audit
from deployment.members import as_toml
from processes import free_ports
from sdfeel.algorithm.trainer import Trainer
from sdfeel.deploy import waiting
from sdfeel.deploy.client.client import ClientProgram
from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.edge import carrier
from sdfeel.deploy.edge.edge import EdgeServer
from sdfeel.deploy.facts import logs
from sdfeel.deploy.model.store import write_safetensors
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.provision import provision

logs.RECENT = logs.KEPT  # whole histories are looked at


def content(
    sizes: Sequence[int] = (2, 2, 2),
    *,
    periods: int = 6,
    tau1: int = 2,
    tau2: int = 1,
    alpha: int = 1,
    averager: str = "paper",
    links: list[tuple[str, str]] | None = None,
    fallback: bool = False,
    **tables: Any,
) -> dict[str, Any]:
    """A deployment file as a dictionary: edges a, b, c, ... with `sizes` clients."""
    names = [chr(ord("a") + n) for n in range(len(sizes))]
    ports = free_ports(len(sizes))
    clients = []
    for edge, size in zip(names, sizes, strict=True):
        for _ in range(size):
            number = len(clients)
            others = [other for other in names if other != edge] if fallback else []
            clients.append(
                {
                    "name": f"c{number}",
                    "edge": edge,
                    "samples": 10 + 7 * number,
                    "fallbacks": others,
                }
            )
    return {
        "name": "test",
        "schedule": {
            "iterations": periods * tau1,
            "tau1": tau1,
            "tau2": tau2,
            "alpha": alpha,
            "averager": averager,
        },
        "edges": [
            {"name": n, "address": f"127.0.0.1:{p}"} for n, p in zip(names, ports, strict=True)
        ],
        "clients": clients,
        "graph": {"links": links} if links else {"kind": "ring"},
        "deadlines": {"round": 12.0, "exchange": 16.0, "ping": 8.0, "retry": 0.05, "home": 0.3}
        | tables.pop("deadlines", {}),
        "local": {"trainer": "toy:trainer"} | tables.pop("local", {}),
        "audit": True,
        "averaging": {"rule": "mean"},  # the simulator's default
        **tables,
    }


def deploy(folder: Path, size: int = toy.SIZE, secure: bool = True, **options: Any) -> Deployment:
    """The deployment with certificates and the first model in `folder`."""
    table = content(**options)
    if not secure:
        table["security"] = {"plaintext": True}
    deployment = parse_deployment(table, folder)
    write_safetensors(folder / "initial.safetensors", as_vector(np.zeros(size)), {})
    if secure:
        provision(deployment)
    return deployment


class World:
    """Edges and clients of a deployment as tasks; each may be taken away and brought back."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.folder = deployment.folder
        self.edges: dict[str, EdgeServer] = {}
        self.clients: dict[str, ClientProgram] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.processes: list[Process] = []
        self.past: list[dict[str, Any]] = []
        self.size = toy.SIZE

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes:
            process.end()
        for name in [*self.clients]:
            await self.kill(name)
        for name in [*self.edges]:
            await self.kill(name)

    async def start_edge(self, name: str) -> EdgeServer:
        edge = EdgeServer(self.deployment, name, self.folder / "state" / name)
        await edge.start()
        self.edges[name] = edge
        self.tasks[name] = asyncio.create_task(edge.run())
        return edge

    def start_client(self, name: str, trainer: Trainer | None = None) -> ClientProgram:
        number = [client.name for client in self.deployment.clients].index(name)
        samples = self.deployment.client(name).samples
        client = ClientProgram(
            self.deployment, name, trainer or toy.ToyTrainer(number, samples, self.size)
        )
        self.clients[name] = client
        self.tasks[name] = asyncio.create_task(client.run())
        return client

    async def start_all(
        self, trainers: dict[str, Trainer] | None = None, without: Sequence[str] = ()
    ) -> None:
        for edge in self.deployment.edges:
            if edge.name not in without:
                await self.start_edge(edge.name)
        for client in self.deployment.clients:
            if client.name not in without:
                self.start_client(client.name, (trainers or {}).get(client.name))

    async def kill(self, name: str) -> None:
        """Without a farewell to its state: what it had not saved is gone."""
        task = self.tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        edge = self.edges.pop(name, None)
        if edge is not None:
            edge.carrier.saver.is_writing = False  # its disk is not waited for
            await edge.stop()
            self.past += edge.log.recent
        self.clients.pop(name, None)

    async def finish(self, seconds: float = 90.0) -> None:
        """Until every task has ended by itself; a failure in one is a failure here."""
        await self.until(lambda: all(task.done() for task in self.tasks.values()), seconds)
        for task in self.tasks.values():
            task.result()

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Polls: conditions of tests look into several nodes at once."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not condition():
            for name, task in self.tasks.items():
                if task.done() and not task.cancelled() and task.exception() is not None:
                    raise AssertionError(name) from task.exception()
            assert loop.time() < end, f"waited in vain: {self.where()}"
            await asyncio.sleep(0.01)

    def where(self) -> dict[str, Any]:
        return {
            name: (edge.phase, edge.done, sorted(edge.cluster.sessions))
            for name, edge in self.edges.items()
        }

    def audit(self, died: Sequence[str] = ()) -> int:
        """Holds the edges' logs, those of processes too, against the invariant."""
        lines = [*self.past, *(x for edge in self.edges.values() for x in edge.log.recent)]
        for process in {p.name: p for p in self.processes if p.role == "edge"}.values():
            lines += process.lines()
        topology = Topology(self.deployment)
        if self.deployment.most_steps:
            found = audit_swaps(topology, lines, links_on_disk(self.deployment))
            assert not found.problems, found.problems[0]
            assert not found.open, "something is not settled"
            return found.both
        return check_mean_kept(topology, lines, died=died)

    def events(self, event: str, node: str | None = None) -> list[dict[str, Any]]:
        nodes = {**self.edges, **self.clients}
        return [
            line
            for name, found in nodes.items()
            if node is None or node == name
            for line in found.log.recent
            if line["event"] == event
        ]


def run_to_the_end(
    deployment: Deployment, trainers: dict[str, Trainer] | None = None, size: int = toy.SIZE
) -> list[np.ndarray]:
    """The edges' models once everybody has ended; nothing was refused on the way.

    Nobody is left out for a slow answer or a slow disk: a busy machine changes no result.
    """

    async def run() -> list[np.ndarray]:
        async with World(deployment) as world:
            world.size = size
            await world.start_all(trainers)
            await world.finish()
            assert not world.events("refused")
            return [edge.model.array() for edge in world.edges.values()]

    patient = mock.patch.object(waiting, "SHORT", 1.0)
    with patient, mock.patch.object(carrier, "PAUSE_SECONDS", 60.0):
        return asyncio.run(run())


def check_mean_kept(
    topology: Topology,
    lines: list[dict[str, Any]],
    tolerance: float = 1e-4,
    died: Sequence[str] = (),
) -> int:
    """From the edges' logs alone: in every exchange the links were used by both ends or neither,
    and the weighted mean over those linked to each other did not move. Returns how many were seen.

    Excused is what an edge that `died` had no time to write down or did again after its restart, a
    decision that came too late, and what one end has taken back or added since. No line may be
    missing (`log-lost`).
    """
    checked, problems = audit(topology, lines, tolerance, died)
    assert not problems, problems[0]
    return checked


def import_path() -> str:
    """For programs: the toy, and the very package that this test runs."""
    return os.pathsep.join([str(Path(toy.__file__).parent), str(Path(sdfeel.__file__).parents[1])])


class Process:
    """A node as a program of its own, to be killed and frozen for real."""

    def __init__(
        self,
        world: World,
        role: str,
        name: str,
        out: IO[str] | None = None,
        descriptors: int = 0,
        **environment: str,
    ) -> None:
        self.world, self.role, self.name = world, role, name
        file = world.folder / "deployment.toml"
        if not file.exists():
            file.write_text(as_toml(world.deployment.model_dump(mode="json")))
        self.log = world.folder / f"{name}.log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sdfeel.deploy.operate.programs", role, str(file), name],
                stdout=out or log,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": import_path(), **environment},
            )
        if descriptors:
            limit = (descriptors, descriptors)
            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, limit)
        world.processes.append(self)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line]

    def saw(self, event: str) -> bool:
        return any(line["event"] == event for line in self.lines())

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
