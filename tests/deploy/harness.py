"""A whole deployment inside one test: real gRPC on loopback, all nodes in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import IO, Any

import networkx as nx
import numpy as np
import toy
from swap_audit import audit_swaps

import sdfeel
from sdfeel.algorithm.trainer import Trainer
from sdfeel.deploy.client.client import ClientProgram
from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.edge.edge import EdgeServer
from sdfeel.deploy.model.store import Store, write_safetensors
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.provision import provision

# Below those that the system gives to connections, and others for each worker of the suite: a port
# that was free a moment ago must not be taken before a node listens on it.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PORTS = cycle(range(20_000 + 2_000 * (WORKER % 6), 22_000 + 2_000 * (WORKER % 6)))


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, and that no other test is given soon."""
    ports: list[int] = []
    while len(ports) < count:
        port = next(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
    return ports


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
        "deadlines": {"round": 4.0, "exchange": 6.0, "ping": 8.0, "retry": 0.05, "home": 0.3}
        | tables.pop("deadlines", {}),
        "local": {"trainer": "toy:trainer"} | tables.pop("local", {}),
        "audit": True,
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


def links_on_disk(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """What the last checkpoint of each edge here says of its links."""
    found = {}
    for edge in deployment.edges:
        last, _ = Store(deployment.folder / "state" / edge.name, {"edge": edge.name}).load(None)
        found[edge.name] = last.agreement if last is not None else {}
    return found


def run_to_the_end(
    deployment: Deployment, trainers: dict[str, Trainer] | None = None, size: int = toy.SIZE
) -> list[np.ndarray]:
    """The edges' models once everybody has ended; nothing was refused on the way."""

    async def run() -> list[np.ndarray]:
        async with World(deployment) as world:
            world.size = size
            await world.start_all(trainers)
            await world.finish()
            assert not world.events("refused")
            return [edge.model.array() for edge in world.edges.values()]

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


def audit(
    topology: Topology, lines: list[dict[str, Any]], tolerance: float, died: Sequence[str]
) -> tuple[int, list[str]]:
    """How many parts of the network were looked at, and all that is wrong."""
    lines = sorted(lines, key=lambda line: line["time"])
    late = {(line["node"], tuple(line["key"])) for line in lines if line["event"] == "undecided"}
    corrected, checked = corrections(lines), 0
    lost = [line for line in lines if line["event"] == "log-lost"]
    problems = [f"{line['node']} lost {line['count']} lines of its log" for line in lost]
    for key, edges in survivors(lines).items():
        again = {name for name, found in edges.items() if len(found) > 1}
        if not again <= set(died):
            problems.append(f"{key}: {again} did an exchange twice")
        excused = again | {name for name in edges if (name, key) in late}
        excused |= set(died) - set(edges)
        used = {(n, peer) for n, found in edges.items() for line in found for peer in line["used"]}
        graph = nx.Graph(used)
        graph.add_nodes_from(edges)
        later = corrected.get(key, {})
        used = {ends for ends in {*used, *later} if later.get(ends, True)}
        for name, peer in used:
            if (peer, name) not in used and not {name, peer} & excused:
                problems.append(f"{key}: {name} used its link to {peer} alone")
        excused |= {name for name, _ in later}  # its line does not have it
        for part in nx.connected_components(graph):
            if part & excused or not part <= edges.keys():
                continue
            checked += 1
            before = sum(topology.share(name) * edges[name][0]["before"] for name in part)
            after = sum(topology.share(name) * edges[name][0]["after"] for name in part)
            scale = 1 + max(abs(edges[name][0]["before"]) for name in part)
            if abs(after - before) > tolerance * scale:
                problems.append(f"{key}: {before} -> {after}")
    return checked, problems


Exchanges = dict[tuple[int, int], dict[str, list[dict[str, Any]]]]


def survivors(lines: list[dict[str, Any]]) -> Exchanges:
    """The exchanges that are in somebody's model: what an edge did after the checkpoint that it
    resumed from died with it.
    """
    exchanges: Exchanges = {}
    for line in lines:
        if line["event"] == "exchange":
            key = (line["period"], line["exchange"])
            found = exchanges.setdefault(key, {}).setdefault(line["node"], [])
            if found and not found[-1]["used"]:
                found.pop()  # a period in which nobody took part is begun again
            found.append(line)
        elif line["event"] in ("resumed", "fresh-start"):
            last = line.get("period", 0)
            for key in [key for key in exchanges if key[0] > last]:
                exchanges[key].pop(line["node"], None)
    return exchanges


def corrections(lines: list[dict[str, Any]]) -> dict[tuple[int, int], dict[tuple[str, str], bool]]:
    """By exchange: whether an edge has used its link to a peer, as it turned out later."""
    found: dict[tuple[int, int], dict[tuple[str, str], bool]] = {}
    for line in lines:
        if line["event"] in ("taken-back", "resolved"):
            period, exchange = line["key"]
            ends = (line["node"], line["peer"])
            found.setdefault((period, exchange), {})[ends] = line.get("used", False)
    return found


def as_toml(table: dict[str, Any], prefix: str = "") -> str:
    """Enough TOML for a deployment file."""

    def value(found: Any) -> str:
        return json.dumps(found) if not isinstance(found, bool) else str(found).lower()

    lines, after = [], []
    for key, found in table.items():
        if isinstance(found, dict):
            after.append(f"[{prefix}{key}]\n" + as_toml(found, f"{prefix}{key}."))
        elif isinstance(found, list) and found and isinstance(found[0], dict):
            after += [f"[[{prefix}{key}]]\n" + as_toml(row, f"{prefix}{key}.") for row in found]
        elif found is not None:
            lines.append(f"{key} = {value(found)}")
    return "\n".join([*lines, *after]) + "\n"


def import_path() -> str:
    """For programs: the toy, and the very package that this test runs."""
    return os.pathsep.join([str(Path(__file__).parent), str(Path(sdfeel.__file__).parents[1])])


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
