"""A whole deployment on the network in memory: real edges and clients, a clock that does not wait.

Nobody learns anything here and the edges begin apart: the weighted mean of the servers' models must
be the same for ever, whatever happens. `Checker` looks whenever a checkpoint is written.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from twin import Door, Net
from twin_identity import TwinAuthority, TwinNotary
from virtual import NODE, VirtualLoop

from sdfeel.deploy.client import client as client_module
from sdfeel.deploy.client.client import ClientProgram
from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.edge import edge as edge_module
from sdfeel.deploy.edge.edge import EdgeServer, Surroundings
from sdfeel.deploy.facts import logs
from sdfeel.deploy.model.files import Layout, ModelFile
from sdfeel.deploy.model.store import EdgeCheckpoint, must_survive
from sdfeel.deploy.model.vectors import Vector, as_vector
from sdfeel.deploy.peers import dialler, link_states
from sdfeel.deploy.peers.agreement import REMEMBERED
from sdfeel.deploy.peers.file_versions import file_digest
from sdfeel.deploy.topology import Topology

logs.RECENT = logs.KEPT  # whole histories are looked at
SIZE = 3
EMPTY: dict[str, Any] = {"open": [], "settled": [], "owed": []}
DEADLINES = {"round": 1.5, "exchange": 2.0, "ping": 0.4, "retry": 0.4, "home": 1.0}


class Still:
    """A trainer that leaves the model as it is."""

    size = SIZE

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def train(self, model: np.ndarray, first: int, steps: int) -> np.ndarray:
        return model


class MemoryStore:
    """A disk that survives its edge. What a dead edge still writes does not arrive.

    found    the checkpoint that a reader gets
    durable  the one that survives a power cut: the last that was flushed
    torn     found when the edge came back after a power cut in the middle of writing
    lost     changes whose files a power cut took
    """

    folder = Path()

    def __init__(self, model: Vector) -> None:
        self.first = model
        self.found: EdgeCheckpoint | None = EdgeCheckpoint(1, model, {"checkpoint": 0} | EMPTY)
        self.durable = self.found
        self.saves = self.torn = self.lost = 0

    def load(self, _size: int) -> tuple[EdgeCheckpoint | None, list[str]]:
        torn, self.torn = self.torn, 0
        self.durable = self.found  # a store flushes what it goes on from
        return self.found, ["checkpoint is cut short"] * torn

    def save(self, checkpoint: EdgeCheckpoint) -> Callable[[], None]:
        """Write; what it returns is called once the disk has said that it is flushed."""
        notes = json.loads(json.dumps(checkpoint.agreement))
        self.found = written = replace(checkpoint, agreement=notes)
        self.saves += 1

        def flushed() -> None:
            if self.found is written:
                self.durable = written

        return flushed

    def lose_power(self, chance: random.Random) -> None:
        """What was not flushed is lost or torn, which a reader notices.

        A change that a checkpoint names is a file of its own (`.kept`) where models are large: of
        those that a store does not flush, the disk may have lost some and have the checkpoint.
        """
        if self.found is not self.durable and self.found is not None:
            self.found, self.torn = self.durable, 1
        if self.found is not None and chance.random() < 0.5:
            flushed = must_survive(self.found.agreement)
            changes = [
                None if place not in flushed and chance.random() < 0.5 else each
                for place, each in enumerate(self.found.changes)
            ]
            self.lost += sum(each is None for each in changes)
            self.found = self.durable = replace(self.found, changes=changes)


class Disk:
    """The store as one life of an edge has it."""

    def __init__(self, store: MemoryStore, world: TwinWorld, name: str) -> None:
        self.store, self.world, self.name = store, world, name
        self.folder = store.folder
        self.life = world.lives[name]

    def acquire(self) -> None:
        """Nobody else has it."""

    def release(self) -> None: ...

    def load(self, size: int) -> tuple[EdgeCheckpoint | None, list[str]]:
        return self.store.load(size)

    def save(self, checkpoint: EdgeCheckpoint) -> None:
        if self.world.lives[self.name] == self.life:
            self.world.loop.delivered.append(self.store.save(checkpoint))
            self.world.checker.saved(self.name)


_files: dict[int, tuple[Deployment, str]] = {}


def file_of(deployment: Deployment) -> str:
    """Its digest; worked out once."""
    if id(deployment) not in _files:
        _files[id(deployment)] = deployment, file_digest(Topology(deployment))
    return _files[id(deployment)][1]


def make_deployment(
    sizes: Sequence[int],
    links: Sequence[tuple[str, str]],
    periods: int,
    averager: str,
    alpha: int = 1,
    guests: bool = True,
    **tables: Any,
) -> Deployment:
    names = [f"e{n:02d}" for n in range(len(sizes))]
    clients = []
    for n, size in enumerate(sizes):
        for _ in range(size):
            fallbacks = [names[(n + 1) % len(names)]] if guests and len(names) > 1 else []
            clients.append(
                {
                    "name": f"c{len(clients)}",
                    "edge": names[n],
                    "samples": 10 + 7 * (len(clients) % 5),
                    "fallbacks": fallbacks,
                }
            )
    table = {
        "name": "twin",
        "schedule": {"iterations": periods, "alpha": alpha, "averager": averager},
        "edges": [{"name": name, "address": "127.0.0.1:1"} for name in names],
        "clients": clients,
        "graph": {"links": [list(link) for link in links]} if links else {"kind": "path"},
        "deadlines": DEADLINES,
        "security": {"plaintext": True},
        "averaging": {"rule": "mean"},  # the simulator's default
        **tables,
    }
    return parse_deployment(table, Path())


class TwinWorld:
    """Edges and clients by name; `kill` takes one away, `start` brings it back."""

    def __init__(
        self, deployment: Deployment, topology: Topology, seed: int, loop: VirtualLoop
    ) -> None:
        self.deployment, self.topology, self.loop = deployment, topology, loop
        self.seed, self._begun = seed, 0
        self.chance = random.Random(seed)  # noqa: S311 - chance, not secrets
        self.disk_chance = random.Random(f"disk {seed}")  # noqa: S311 - chance, not secrets
        self.net = Net(loop, self.chance, deployment.deadlines.ping)
        self.lives = dict.fromkeys(topology.at(0).edges, 0)
        self.used: dict[str, Deployment] = {}  # the file that an edge has in its state folder
        self.gone_over: set[str] = set()
        values = np.random.default_rng(seed).normal(size=(len(topology.at(0).edges), SIZE))
        self.disks = {
            name: MemoryStore(as_vector(row))
            for name, row in zip(topology.at(0).edges, values, strict=True)
        }
        self.first = self.mean()
        self.edges: dict[str, EdgeServer] = {}
        self.clients: dict[str, ClientProgram] = {}
        self.tasks: dict[str, asyncio.Task[Any]] = {}
        self.accepted: dict[str, dict[int, None]] = {}
        self.events: dict[str, int] = {}
        self.past: list[dict[str, Any]] = []
        self.checker = Checker(self)
        self.starting: asyncio.Future[None] | None = None

    def mean(self, names: Sequence[str] = ()) -> np.ndarray:
        """Of what is on the disks, of all edges or of some."""
        names = names or self.topology.at(0).edges
        rows = [self.disks[name].found.model.array() for name in names]
        shares = [self.topology.at(0).share(name) for name in names]
        return np.array(shares) @ np.array(rows, dtype=np.float64)

    async def start(self, name: str) -> None:
        token = NODE.set(name)
        try:
            if name in self.lives:
                await self._start_edge(name)
            else:
                self._start_client(name)
        finally:
            NODE.reset(token)

    async def _start_edge(self, name: str) -> None:
        self.lives[name] += 1
        disk: Any = Disk(self.disks[name], self, name)
        door: Any = Door(self.net, "edge", name)
        used = self.used.setdefault(name, self.deployment)
        newer = self.deployment if file_of(self.deployment) != file_of(used) else None
        fields: dict[str, Any] = {"newer": newer, "has_begun": name in self.gone_over}
        fields["around"] = Surroundings(door, disk, self._luck())
        edge = EdgeServer(used, name, Path(), **fields)
        self.edges[name] = edge
        door.credentials = edge.credentials
        await edge.start()
        self.tasks[name] = asyncio.ensure_future(self._run(edge))

    async def _run(self, edge: EdgeServer) -> None:
        """As the program does, which says no farewell when it is killed."""
        await edge.run()
        await edge.stop()
        if edge.files.is_over:
            self.used[edge.name] = self.deployment
            self.gone_over.add(edge.name)
            self._note(edge)
            await self._start_edge(edge.name)

    def _start_client(self, name: str) -> None:
        trainer = self.trainer(name)
        door: Any = Door(self.net, "client", name)
        client = ClientProgram(self.deployment, name, trainer, None, door, self._luck())
        self.clients[name] = client
        self.tasks[name] = asyncio.ensure_future(client.run())

    def _luck(self) -> random.Random:
        """What a node draws by itself, in this life of it; the network draws as without it."""
        self._begun += 1
        return random.Random(f"{self.seed} {self._begun}")  # noqa: S311 - chance, not secrets

    def trainer(self, name: str) -> Any:
        return Still(self.deployment.client(name).samples)

    def kill(self, name: str, quietly: bool = False) -> None:
        """As kill -9 does, or a power cut (`quietly`): nothing that it has not saved survives."""
        if name in self.lives:
            self.lives[name] += 1
            if quietly:
                self.disks[name].lose_power(self.disk_chance)
        self.net.vanish(name, quietly)
        self.loop.end(name)
        self.tasks.pop(name, None)
        self._note(self.edges.pop(name, None))
        self.clients.pop(name, None)

    def _note(self, edge: EdgeServer | None) -> None:
        if edge is not None:
            self.past += edge.log.recent
        for line in edge.log.recent if edge is not None else ():
            self.events[line["event"]] = self.events.get(line["event"], 0) + 1

    async def start_all(self) -> None:
        for name in (*self.topology.at(0).edges, *self.topology.at(0).clients):
            if name not in self.tasks:
                await self.start(name)

    async def finish(self, seconds: float) -> None:
        """Until all edges have ended by themselves.

        Whoever has ended is started again, as an operator would, while another is behind it or
        something is open between them.
        """
        end = self.loop.time() + seconds
        again = 3
        while True:
            await self._until_calm(seconds=10.0)
            assert self.loop.time() < end, f"not over after {seconds} s: {self.where()}"
            if self._are_done():
                again -= 1
                if not again or self._is_even():
                    break
            for name in (*self.lives, *self.topology.at(0).clients):
                if name in self.tasks and self.tasks[name].done():
                    self.tasks[name].result()
                    self.kill(name)
        for edge in self.edges.values():
            self._note(edge)

    async def _until_calm(self, seconds: float) -> None:
        await self.start_all()
        end = self.loop.time() + seconds
        while self.loop.time() < end and not self._are_done():
            await asyncio.sleep(0.5)

    def _are_done(self) -> bool:
        """All edges have ended by themselves; one that was just killed will be started."""
        return all(name in self.tasks and self.tasks[name].done() for name in self.lives)

    def _used(self, name: str) -> set[tuple[str, str, tuple[int, ...]]]:
        """The links that an edge has used, by what is on its disk."""
        notes = self.disks[name].found.agreement
        rows = [(row[0], row[1:4]) for row in notes.get("settled", ())]
        rows += [(row["peer"], row["id"]) for row in notes.get("open", ()) if row["used"]]
        return {(min(name, peer), max(name, peer), tuple(id_)) for peer, id_ in rows}

    def _is_even(self) -> bool:
        """Whether every link that is on a disk as used is so on both."""
        used = {name: self._used(name) for name in self.lives}
        links = {link for found in used.values() for link in found}
        return all(link in used[link[0]] and link in used[link[1]] for link in links)

    def where(self) -> dict[str, Any]:
        return {n: (e.phase, e.done, sorted(e.cluster.sessions)) for n, e in self.edges.items()}


class Checker:
    """What must hold at every moment, and what must hold in the end."""

    def __init__(self, world: TwinWorld) -> None:
        self.world = world
        self.looks = 0

    def saved(self, name: str) -> None:
        """A checkpoint was written. What an edge calls settled, the other end's disk has."""
        self.looks += 1
        mine = self.world.disks[name].found.agreement
        for peer, *id_, _own in mine.get("settled", ()):
            found = self.world.disks[peer].found
            if found is None:
                continue  # its disk is lost
            theirs = found.agreement
            known = [row[1:4] for row in theirs.get("settled", ()) if row[0] == name]
            if len(known) >= REMEMBERED and id_ < min(known):
                continue  # so long ago that it is forgotten
            known += [row["id"] for row in theirs.get("open", ()) if row["peer"] == name]
            assert id_ in known, f"{name} calls {id_} settled, {peer} does not have it"

    def calm(self) -> None:
        """Everything is made good: the mean is what it was, and nobody is in doubt."""
        world = self.world
        moved = np.abs(world.mean() - world.first).max()
        assert moved < 1e-4, f"the weighted mean has moved by {moved}"
        for name, disk in world.disks.items():
            assert disk.found.done == world.topology.plan(name), f"{name} is at {disk.found.done}"
            assert not disk.found.agreement["owed"], f"{name} has not paid"


# By edge, the time of one that waits for no other cluster.
TURNS = (0.5, 0.3, 0.8, 0.37)


@cache
def small(shape: str, averager: str, periods: int) -> tuple[Deployment, Topology]:
    """A deployment of a few edges with a client each; made once, used thousands of times.

    averager  or `mean-preserving`, `stale-weights`: without rounds; with a codec between edges
              behind it, as "paper int8"
    """
    averager, _, codec = averager.partition(" ")
    links = {
        "pair": [("e00", "e01")],
        "path": [("e00", "e01"), ("e01", "e02")],
        "ring": [("e00", "e01"), ("e01", "e02"), ("e00", "e02")],
        "star": [("e00", "e01"), ("e00", "e02"), ("e00", "e03")],
    }[shape]
    count = 1 + max(int(name[1:]) for link in links for name in link)
    free: dict[str, Any] = {}
    if averager in ("mean-preserving", "stale-weights"):
        pace = {"name": "asynchronous", "deadline": TURNS[:count], "mixing": averager}
        free = {"pace": pace, "guests": False, "audit": True}
        averager = "paper"
    codecs = {"between": codec or "float32"}
    deployment = make_deployment([1] * count, links, periods, averager, codecs=codecs, **free)
    return deployment, Topology(deployment)


class Uncounted:
    """In the place of metrics: making a registry costs more than a period here."""

    def __getattr__(self, _name: str) -> Uncounted:
        return self

    def labels(self, *_names: str) -> Uncounted:
        return self

    def inc(self, _amount: float = 1) -> None:
        pass

    def value(self, _name: str, **_labels: str) -> float:
        return 0.0

    add = set = set_function = observe = inc


def make_edges_cheap(monkeypatch: Any) -> None:
    """Edges take the network that was worked out before, and the first model from nowhere."""
    made: dict[int, Topology] = {}

    def known(deployment: Deployment) -> Topology:
        found = made.get(id(deployment))
        if found is None:
            found = made[id(deployment)] = Topology(deployment)
        return found

    monkeypatch.setattr(edge_module, "Metrics", Uncounted)
    zeros = ModelFile(Layout.flat(SIZE), as_vector(np.zeros(SIZE)))
    monkeypatch.setattr(edge_module, "Topology", known)
    monkeypatch.setattr(edge_module, "read_model", lambda _path, **_: zeros)
    # There are no certificates here whose renewal or end would have to be noticed.
    monkeypatch.setattr(edge_module, "WATCH_SECONDS", 60.0)
    monkeypatch.setattr(dialler, "RENEWAL_SECONDS", 60.0)


PLAIN = ("cut", "silence", "slow", "kill", "kill", "client")
SECURED = (*PLAIN, "power", "renew", "expire", "revoke", "clock")


async def trouble(
    world: TwinWorld, seconds: float, every: float, kinds: Sequence[str] = PLAIN
) -> None:
    """Things go wrong, one after the other, until the time is over."""
    chance, net = world.chance, world.net
    end = world.loop.time() + seconds
    ways = [(a, b) for a in world.topology.at(0).edges for b in world.topology.at(0).neighbours(a)]
    while world.loop.time() < end:
        await asyncio.sleep(every * (0.1 + chance.expovariate(1.0)))
        kind = chance.choice(kinds)
        way = chance.choice(ways)
        if kind == "cut":
            net.cut(*way)
        elif kind == "silence":
            net.silence(way, chance.choice((0.2, 1.0, 3.0)))
        elif kind == "slow":
            net.slow[way] = chance.choice((0.0, 0.0, 0.05, 0.7))
        elif kind in ("kill", "power", "client"):
            names = world.topology.at(0).clients if kind == "client" else world.topology.at(0).edges
            name = chance.choice(names)
            if name in world.tasks:
                world.kill(name, quietly=kind == "power" or chance.random() < 0.3)
                world.loop.call_later(chance.choice((0.01, 0.3, 2.0)), _back, world, name)
        else:
            _trouble_with_trust(
                world, kind, chance.choice([*world.lives, *world.topology.at(0).clients])
            )
    net.slow.clear()


def _trouble_with_trust(world: TwinWorld, kind: str, name: str) -> None:
    """Certificates that are renewed, end or are revoked, and clocks that are wrong; for a while."""
    authority, chance = world.net.authority, world.chance
    assert authority is not None
    clocks = authority.clocks
    later = chance.choice((0.05, 0.5, 2.0))
    if kind == "renew":
        authority.renew(name)
    elif kind == "expire":
        authority.renew(name, seconds=chance.choice((0.0, 0.2)))
        world.loop.call_later(later, authority.renew, name)
    elif kind == "revoke":
        authority.revoke(name)
        world.loop.call_later(later, authority.renew, name)
    else:
        clocks.wrong[name] = chance.choice((-7200.0, -60.0, 60.0, 7200.0, 1e8))
        world.loop.call_later(later, clocks.wrong.pop, name, None)


def _back(world: TwinWorld, name: str) -> None:
    if name not in world.tasks:
        world.starting = asyncio.ensure_future(world.start(name))


def run_schedule(seed: int, shape: str, averager: str, periods: int = 3) -> TwinWorld:
    """One history with faults, from its start to its end."""
    return _run(seed, shape, averager, periods, PLAIN, None)


def run_secured(seed: int, shape: str, averager: str, periods: int = 3) -> TwinWorld:
    """The same with certificates, disks that lose power and clocks that are wrong."""
    with secured() as authority:
        return _run(seed, shape, averager, periods, SECURED, authority)


@contextmanager
def secured() -> Iterator[TwinAuthority]:
    """Nodes have certificates of this authority and look at them and at wall clocks of their own;
    `authority.clocks.now` and `Net.authority` are to be set.
    """
    authority = TwinAuthority()
    with (
        patch.object(edge_module, "Credentials", authority.credentials),
        patch.object(client_module, "Credentials", authority.credentials),
        patch.object(link_states, "Notary", TwinNotary),
        patch.object(link_states, "time", authority.clocks),
        patch.object(edge_module, "WATCH_SECONDS", 0.5),
        patch.object(dialler, "RENEWAL_SECONDS", 0.5),
    ):
        yield authority


def _run(
    seed: int,
    shape: str,
    averager: str,
    periods: int,
    kinds: Sequence[str],
    authority: TwinAuthority | None,
) -> TwinWorld:
    deployment, topology = small(shape, averager, periods)
    loop = VirtualLoop(seed, longest=0.3)
    if authority is not None:
        authority.clocks.now = loop.time

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, topology, seed, loop)
        world.net.repeats, world.net.authority = 0.05, authority
        await world.start_all()
        await trouble(world, 1.5, 0.2 if authority is None else 0.12, kinds)
        await world.finish(400.0)
        world.checker.calm()
        return world

    return loop.run(main())


SHAPES = ("pair",) * 5 + ("path",) * 3 + ("ring", "star")
AVERAGERS = (
    *("paper", "all-reduce", "metropolis", "paper int8"),
    *("all-reduce", "metropolis int4", "metropolis bfloat16"),
)


def one_history(seed: int, run: Callable[[int, str, str], TwinWorld]) -> TwinWorld:
    """The history of a seed, which names itself if anything is wrong in it."""
    shape, averager = SHAPES[seed % len(SHAPES)], AVERAGERS[seed % len(AVERAGERS)]
    try:
        return run(seed, shape, averager)
    except AssertionError as problem:
        raise AssertionError(f"seed {seed} ({shape}, {averager}): {problem}") from problem
