"""What went wrong in a deployment is told once, and what did not is not told.

Real edges and clients on the network in memory, looked at as the page looks at them; faults by a
script.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("grpc", reason="the deployment comes with sdfeel[deploy]")

from twin_identity import EPOCH, Clocks, TwinAuthority
from twin_world import TwinWorld, make_deployment, make_edges_cheap
from virtual import NODE, VirtualLoop

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.edge import replies
from sdfeel.deploy.facts import facts, stream
from sdfeel.deploy.operate.edge_status import EdgeStatus
from sdfeel.deploy.operate.status import EdgeConnection, Look
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.page.observed import Observed, Seen
from sdfeel.page.refusal_stories import not_taken
from sdfeel.page.stories import stories
from sdfeel.page.story import Story

RING = [("e00", "e01"), ("e01", "e02"), ("e00", "e02")]
EVERY = 0.4  # seconds between two looks
PERIODS = 10**6
TRAINING = 0.2  # seconds of a period


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    make_edges_cheap(monkeypatch)


class Machine(VirtualLoop):
    """Training takes `TRAINING`, saving what the disk of its edge takes."""

    def run_in_executor(self, executor: Any, work: Any, *args: Any) -> asyncio.Future[Any]:
        function = getattr(work, "args", [None])[0]
        is_training = "_carry_out" in getattr(function, "__qualname__", "")
        disk = getattr(function, "__self__", None)
        seconds = TRAINING if is_training else getattr(disk, "seconds", 0.001)
        future = self.create_future()
        self.call_later(seconds, self._finish, future, lambda: self._do(work, args))
        return future


class Watch:
    """Looks at all edges again and again, as the page does."""

    def __init__(self, world: TwinWorld) -> None:
        self.world, self.seen = world, Observed()
        self.frozen: set[str] = set()
        deployment = world.deployment
        credentials = Credentials(deployment, "operator", "operator")
        self._lines = {name: EdgeConnection(deployment, credentials, name) for name in world.lives}

    async def run(self) -> None:
        while True:
            for name, line in self._lines.items():
                self.seen.take(self._look(name, line), self.now)
            await asyncio.sleep(EVERY)

    @property
    def now(self) -> float:
        return EPOCH + self.world.loop.time()

    def _look(self, name: str, line: EdgeConnection) -> Look:
        edge = self.world.edges.get(name)
        if name in self.frozen or edge is None:
            cause = "timeout" if name in self.frozen else "nothing-listens"
            return Look(EdgeStatus(name, problem=cause, cause=cause), [], 0, 0.0)
        request = v1.StatusRequest(life=line._life, since=line._since)
        token = NODE.set(name)
        try:
            reply = edge.replies.status(request, None)
        finally:
            NODE.reset(token)
        return line.read(v1.StatusReply.FromString(reply.SerializeToString()), self.now)

    def stories(self) -> list[Story]:
        homes: dict[str, list[str]] = {name: [] for name in self.world.lives}
        for client in self.world.deployment.clients:
            homes[client.edge].append(client.name)
        seen = self.seen
        return stories(seen.seen, seen.silences, seen.skews, homes, self.now)


Script = Callable[[TwinWorld, Watch], Awaitable[None]]


def play(
    monkeypatch: pytest.MonkeyPatch,
    script: Script,
    sizes: tuple[int, ...] = (3, 2, 2),
    authority: TwinAuthority | None = None,
    **options: Any,
) -> list[Story]:
    """Three edges on a ring; what is told at the end of a script."""
    deployment: Deployment = make_deployment(sizes, RING, PERIODS, "paper", **options)
    loop = Machine(1)
    clocks = authority.clocks if authority is not None else Clocks()
    clocks.now = loop.time
    monkeypatch.setattr(stream, "time", clocks)
    monkeypatch.setattr(replies, "time", clocks)

    async def main() -> list[Story]:
        world = TwinWorld(deployment, Topology(deployment), 1, loop)
        world.net.authority = authority
        watch = Watch(world)
        looking = asyncio.ensure_future(watch.run())
        await world.start_all()
        await asyncio.sleep(10.0)
        assert watch.stories() == [], "an ordinary start is no story"
        await script(world, watch)
        await asyncio.sleep(2.0)
        looking.cancel()
        return watch.stories()

    result: list[Story] = loop.run(main())
    return result


def told(story: Story) -> str:
    return ", ".join([story.what, *(part.words for part in story.parts)])


# Ten faults and more.


async def dies(world: TwinWorld, watch: Watch) -> None:
    world.kill("e00")
    await asyncio.sleep(12.0)
    await world.start("e00")
    await asyncio.sleep(15.0)


async def loses_power(world: TwinWorld, watch: Watch) -> None:
    world.kill("e00", quietly=True)
    watch.frozen.add("e00")
    await asyncio.sleep(12.0)
    watch.frozen.discard("e00")
    await world.start("e00")
    await asyncio.sleep(15.0)


async def dies_for_good(world: TwinWorld, watch: Watch) -> None:
    world.kill("e00")
    await asyncio.sleep(20.0)


async def restarts_at_once(world: TwinWorld, watch: Watch) -> None:
    """So quickly that nobody sees it silent."""
    world.kill("e00")
    await asyncio.sleep(0.05)
    await world.start("e00")
    await asyncio.sleep(15.0)


async def is_stopped(world: TwinWorld, watch: Watch) -> None:
    edge = world.edges["e00"]
    token = NODE.set("e00")
    try:
        world.tasks["e00"].cancel()
        await edge.stop()
    finally:
        NODE.reset(token)
    world.kill("e00")
    await asyncio.sleep(8.0)
    await world.start("e00")
    await asyncio.sleep(15.0)


async def freezes(world: TwinWorld, watch: Watch) -> None:
    others = [*world.lives, *world.topology.at(0).clients]
    for other in others:
        if other != "e00":
            world.net.silence(("e00", other), 8.0)
            world.net.silence((other, "e00"), 8.0)
    watch.frozen.add("e00")
    await asyncio.sleep(8.0)
    watch.frozen.discard("e00")
    await asyncio.sleep(20.0)


async def cut(world: TwinWorld, watch: Watch) -> None:
    world.net.silence(("e00", "e01"), 6.0)
    world.net.silence(("e01", "e00"), 6.0)
    await asyncio.sleep(15.0)


async def cut_off(world: TwinWorld, watch: Watch) -> None:
    """All links of an edge, whose clients and whose operator still reach it."""
    for other in ("e01", "e02"):
        world.net.silence(("e00", other), 6.0)
        world.net.silence((other, "e00"), 6.0)
    await asyncio.sleep(15.0)


async def full_disk(world: TwinWorld, watch: Watch) -> None:
    disk: Any = world.edges["e00"].store
    save = disk.save

    def full(_checkpoint: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    disk.save = full
    await asyncio.sleep(15.0)
    disk.save = save
    await asyncio.sleep(10.0)


async def slow_disk(world: TwinWorld, watch: Watch) -> None:
    disk: Any = world.edges["e00"].store
    disk.seconds = 4.0
    await asyncio.sleep(40.0)
    disk.seconds = 0.001
    await asyncio.sleep(15.0)


async def no_clients(world: TwinWorld, watch: Watch) -> None:
    for name in world.topology.at(0).clients:
        world.kill(name)
    await asyncio.sleep(20.0)
    for name in world.topology.at(0).clients:
        await world.start(name)
    await asyncio.sleep(10.0)


async def client_dies(world: TwinWorld, watch: Watch) -> None:
    world.kill("c1")
    await asyncio.sleep(10.0)
    await world.start("c1")
    await asyncio.sleep(10.0)


async def refused(world: TwinWorld, watch: Watch) -> None:
    for _ in range(5):
        world.edges["e00"].cluster.refuse("c1", Refused("norm", "an update of norm 9"))
        await asyncio.sleep(1.5)


async def lies(world: TwinWorld, watch: Watch) -> None:
    """As the link states tell it: see tests/deploy/test_lying_edge.py for how they find out."""
    for name, peer in (("e00", "e02"), ("e02", "e00")):
        world.edges[name].links.barred.add("e01")
        world.edges[name].node.tell(facts.Contradiction(edge="e01", number=7, peer=peer))
    await asyncio.sleep(10.0)


async def clock_behind(world: TwinWorld, watch: Watch) -> None:
    watch_clocks(world).wrong["e00"] = -7200.0
    await asyncio.sleep(10.0)
    watch_clocks(world).wrong.pop("e00")
    await asyncio.sleep(10.0)


def watch_clocks(world: TwinWorld) -> Clocks:
    clocks: Any = stream.time
    return clocks


async def newer_file(world: TwinWorld, watch: Watch) -> None:
    world.deployment = make_deployment((3, 2, 3), RING, PERIODS, "paper")
    for name in ("e02", "e00", "e01"):
        world.kill(name)
        await world.start(name)
        await asyncio.sleep(10.0)
    await asyncio.sleep(10.0)


CASES: dict[str, tuple[Script, list[tuple[str, str]]]] = {
    "dies": (dies, [("died", "e00 died, 3 clients moved to e01, back, nothing lost")]),
    "loses power": (
        loses_power,
        [("died", "e00 died, 3 clients moved to e01, back, nothing lost")],
    ),
    "dies for good": (dies_for_good, [("died", "e00 died, 3 clients moved to e01")]),
    "restarts at once": (
        restarts_at_once,
        [("died", "e00 died, 3 clients moved to e01, back, nothing lost")],
    ),
    "is stopped": (
        is_stopped,
        [("stopped", "e00 was stopped, 3 clients moved to e01, back, nothing lost")],
    ),
    "freezes": (
        freezes,
        [("frozen", "e00 was frozen, overloaded or cut off, 3 clients moved to e01, back")],
    ),
    "cut": (
        cut,
        [("link", "the link between e00 and e01 was cut, both went on without it, back")],
    ),
    "cut off": (cut_off, [("link", "e00 lost its links to e01 and e02, all went on, back")]),
    "full disk": (
        full_disk,
        [
            (
                "disk",
                "e00 paused: its disk takes no checkpoint "
                "([Errno 28] No space left on device), goes on, nothing lost",
            )
        ],
    ),
    "slow disk": (
        slow_disk,
        [("disk", "the disk of e00 was too slow, so it paused, goes on, nothing lost")],
    ),
    "no clients": (
        no_clients,
        [
            (
                "no-clients",
                "no period goes by at e00, e01 and e02: they have no clients, goes on",
            )
        ],
    ),
    "client dies": (client_dies, [("client", "c1 left e00, back")]),
    "refused": (refused, [("refused", "e00 refused 5 models of c1: an update of norm 9")]),
    "lies": (
        lies,
        [
            (
                "liar",
                "e01 signed two states that contradict each other, "
                "e00 and e02 use its links no more",
            )
        ],
    ),
    "clock behind": (clock_behind, [("clock", "the clock of e00 was 2 h behind, right again")]),
    "newer file": (
        newer_file,
        [
            (
                "file",
                "e02 got another deployment file, the older one held meanwhile, "
                "all have the same again",
            )
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_fault_is_one_story(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script, expected = CASES[name]
    found = play(monkeypatch, script)
    assert [(story.kind, told(story)) for story in found] == expected
    for story in found:
        assert story.details or story.kind == "clock", "it says from which facts it is"
        assert story.last is None or story.first <= story.last


def test_a_client_that_is_always_far_too_long_is_told_and_an_honest_one_is_not() -> None:
    """Honest clients are scaled down now and then; they stand in the table below."""
    seen = [
        Seen(
            60.0 * n,
            "e00",
            1,
            facts.Clipped(client=name, period=n, norm=norm, most=2.0),
            9,
            60.0 * n,
        )
        for n in range(3)
        for name, norm in (("c1", 2.2), ("c2", 8.0))
    ]
    (story,) = stories(seen)
    assert told(story) == "e00 scaled c2 down: up to 4 times too long"
    rows = not_taken(seen)
    assert {(row["client"], row["times"]) for row in rows} == {("c1", 27), ("c2", 27)}
