"""One edge among honest ones says what is not so: it harms its own links, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from liar import Liar
from twin_world import DEADLINES, SIZE, TwinWorld, make_deployment, make_edges_cheap
from virtual import VirtualLoop

from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.wire import frames

RING = [("e00", "e01"), ("e01", "e02"), ("e02", "e03"), ("e00", "e03")]
HONEST = ("e00", "e01", "e02")
PERIODS = 12


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    make_edges_cheap(monkeypatch)


def play(
    script: Callable[[Any, str], Awaitable[None]],
    check: Callable[[TwinWorld, Liar], None],
    averager: str = "paper",
    seconds: float = 60.0,
    fresh: bool = False,
    **hello: Any,
) -> None:
    """Three honest edges and the liar on a ring; the honest make all periods in this time."""
    deployment = make_deployment([1, 1, 1, 1], RING, PERIODS, averager)
    loop = VirtualLoop(3, longest=0.1)

    async def main() -> None:
        world = TwinWorld(deployment, Topology(deployment), seed=3, loop=loop)
        if fresh:
            for disk in world.disks.values():
                disk.found = None
        liar = Liar(world, script, **hello)
        await liar.listen()
        for name in (*HONEST, "c0", "c1", "c2"):
            await world.start(name)
        while not all(world.edges[name].phase == "finished" for name in HONEST):
            assert loop.time() < seconds, world.where()
            await asyncio.sleep(0.1)
        check(world, liar)

    loop.run(main())


def events(world: TwinWorld, event: str) -> list[dict[str, Any]]:
    return [
        line for edge in world.edges.values() for line in edge.log.recent if line["event"] == event
    ]


def no_leap(world: TwinWorld, _liar: Liar) -> None:
    """Every honest edge made every period itself, or one that two others had just made.

    One that comes too late for the exchange of a period takes part in the one after those that
    the others have made meanwhile, which are few.
    """
    caught_up = events(world, "jump")
    assert all(line["to"] <= line["period"] + 3 for line in caught_up)
    for name in HONEST:
        made = [line["period"] for line in events(world, "period") if line["node"] == name]
        mine = [line for line in caught_up if line["node"] == name]
        skipped = {n for line in mine for n in range(line["period"], line["to"])}
        periods = set(range(2, PERIODS + 1))
        assert sorted(made) == made
        assert periods - skipped <= set(made) <= periods | {1}


async def silent(_stream: Any, _peer: str) -> None:
    return


async def say(stream: Any, **progress: int) -> None:
    await stream.write(v1.LinkMessage(progress=v1.Progress(**progress)))


@pytest.mark.parametrize("done", [PERIODS + 1, 10**6, 2**63])
def test_a_period_beyond_the_last_is_refused_in_the_hello(done: int) -> None:
    def check(world: TwinWorld, liar: Liar) -> None:
        no_leap(world, liar)
        reasons = [line["reason"] for line in events(world, "dial-failed")]
        assert any(
            reason.startswith(f"period {done}, the last one here is {PERIODS}")
            for reason in reasons
        )

    play(silent, check, done=done)


@pytest.mark.parametrize("done", [PERIODS + 1, 10**6, 2**63])
def test_a_period_beyond_the_last_is_refused_in_progress(done: int) -> None:
    async def script(stream: Any, _peer: str) -> None:
        await asyncio.sleep(0.3)
        await say(stream, done=done)

    def check(world: TwinWorld, liar: Liar) -> None:
        no_leap(world, liar)
        kinds = {line["kind"] for line in events(world, "refused") if line.get("peer") == "e03"}
        assert kinds == {"period"}

    play(script, check)


@pytest.mark.parametrize("averager", ["paper", "all-reduce"])
@pytest.mark.parametrize("how", ["hello", "progress", "gossip"])
def test_one_voice_is_not_enough_for_a_jump(how: str, averager: str) -> None:
    """It says that it has finished everything: nobody follows, in whatever words."""

    async def script(stream: Any, peer: str) -> None:
        if how == "progress":
            await say(stream, done=PERIODS)
        if how == "gossip":
            state = v1.LinkState(edge="e03", number=2**62, up=[peer], done=PERIODS)
            await stream.write(v1.LinkMessage(state=state))

    play(script, no_leap, averager, done=PERIODS if how == "hello" else 1)


@pytest.mark.parametrize("lends", [False, True])
def test_at_a_first_start_nobody_follows_either(lends: bool) -> None:
    """No edge has a checkpoint; the liar says that it is done, and has a model for everybody."""
    far = as_vector(np.full(SIZE, 1e6))

    async def script(stream: Any, _peer: str) -> None:
        while lends:
            await asyncio.sleep(0.05)
            await stream.write(v1.LinkMessage(model=frames.header(far, 5, stage=v1.Stage.LENT)))
            for chunk in frames.chunks(far):
                await stream.write(v1.LinkMessage(chunk=chunk))

    def check(world: TwinWorld, liar: Liar) -> None:
        no_leap(world, liar)
        assert not events(world, "adopted")

    play(script, check, fresh=True, done=PERIODS)


@pytest.mark.parametrize("averager", ["paper", "all-reduce"])
def test_the_word_progress_without_progress_does_not_renew_patience(averager: str) -> None:
    """The same number every half second; the first exchange waits no longer than its deadline."""

    async def script(stream: Any, _peer: str) -> None:
        while True:
            await say(stream, done=1)
            await asyncio.sleep(DEADLINES["exchange"] / 4)

    # It is waited for half as long each time: less than two deadlines in all, for each neighbour.
    play(script, no_leap, averager, seconds=4 * DEADLINES["exchange"] + 6)


def test_an_edge_that_crawls_is_not_waited_for() -> None:
    """It finishes a period just before each deadline, and is always far behind."""

    async def script(stream: Any, _peer: str) -> None:
        for done in range(1, PERIODS):
            await say(stream, done=done // 4)
            await asyncio.sleep(0.8 * DEADLINES["exchange"])

    play(script, no_leap, seconds=4 * DEADLINES["exchange"] + 6)


@pytest.mark.parametrize("done", [5, PERIODS])
def test_a_lost_disk_is_not_filled_by_a_liar(done: int) -> None:
    """It offers a model from far away and the farthest period; the honest neighbour is believed."""
    deployment = make_deployment([1, 1, 1, 1], RING, PERIODS, "paper")
    loop = VirtualLoop(3, longest=0.1)
    far = as_vector(np.full(SIZE, 1e6))

    async def script(stream: Any, _peer: str) -> None:
        if loop.time() > 6:
            announced = frames.header(far, done, stage=v1.Stage.LENT)
            await asyncio.sleep(0.05)
            await stream.write(v1.LinkMessage(model=announced))
            for chunk in frames.chunks(far):
                await stream.write(v1.LinkMessage(chunk=chunk))

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, Topology(deployment), seed=3, loop=loop)
        liar = Liar(world, script, done=done)
        await liar.listen()
        for name in (*HONEST, "c0", "c1", "c2"):
            await world.start(name)
        while world.edges["e01"].done < 4:
            await asyncio.sleep(0.01)
        world.kill("e00")
        while loop.time() < 6.5:  # slowed down: the others must still be under way
            await asyncio.sleep(0.01)
            world.net.slow |= {("c0", "e01"): 1.2, ("c1", "e01"): 1.2, ("c2", "e02"): 1.2}
        world.disks["e00"].found = None
        await world.start("e00")
        while not any(line["event"] == "adopted" for line in world.edges["e00"].log.recent):
            await asyncio.sleep(0.01)
        return world

    world = loop.run(main())
    (adopted,) = (line for line in events(world, "adopted"))
    assert adopted["peer"] == "e01"
    assert adopted["period"] <= world.edges["e01"].done
    assert np.abs(world.edges["e00"].model.array()).max() < 10


def test_a_lost_disk_waits_for_the_answer_that_was_cut_off() -> None:
    """Until then there is only the liar's, which nobody can hold against another."""
    deployment = make_deployment([1, 1, 1, 1], RING, 10**6, "paper")
    loop = VirtualLoop(3, longest=0.01)
    lent: list[float] = []
    far = as_vector(np.full(SIZE, 1e6))

    async def script(stream: Any, peer: str) -> None:
        state = v1.LinkState(edge="e03", number=1, up=["e00", "e02"], done=3)
        await stream.write(v1.LinkMessage(state=state))
        while peer == "e00":
            await asyncio.sleep(0.001)
            if not any(message.WhichOneof("body") == "wanted" for message in stream.told):
                continue
            stream.told.clear()
            await stream.write(v1.LinkMessage(model=frames.header(far, 3, stage=v1.Stage.LENT)))
            for chunk in frames.chunks(far):
                await stream.write(v1.LinkMessage(chunk=chunk))
            lent.append(loop.time())

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, Topology(deployment), seed=3, loop=loop)
        await Liar(world, script, done=3).listen()
        for name in (*HONEST, "c0", "c1", "c2"):
            await world.start(name)
        await asyncio.sleep(3)
        world.kill("e00")
        world.disks["e00"].found = None
        cut = 0
        await world.start("e00")
        while not lent:
            await asyncio.sleep(0.0001)
            if len(events(world, "lent")) > cut:
                cut += 1
                world.net.cut("e00", "e01")
        while not events(world, "adopted"):
            assert loop.time() < 9, world.where()
            await asyncio.sleep(0.01)
        return world

    world = loop.run(main())
    (adopted,) = events(world, "adopted")
    assert (adopted["peer"], adopted["beside"]) == ("e01", ["e03"])


def test_a_leaf_that_comes_back_has_a_second_voice_behind_its_only_neighbour() -> None:
    """On a path: e01 is its only neighbour, and e02 vouches for it."""
    path = [("e00", "e01"), ("e01", "e02")]
    deployment = make_deployment([1, 1, 1], path, 200, "paper")
    loop = VirtualLoop(3, longest=0.1)

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, Topology(deployment), seed=3, loop=loop)
        await world.start_all()
        await asyncio.sleep(2)
        world.kill("e00")
        await asyncio.sleep(4)
        at = world.edges["e01"].done
        assert at > world.disks["e00"].found.done + 5
        await world.start("e00")
        while world.edges["e00"].done < at:
            assert loop.time() < 9, world.where()
            await asyncio.sleep(0.05)
        used = world.edges["e00"].links["e01"].used
        await asyncio.sleep(2)
        assert world.edges["e00"].links["e01"].used > used + 5, "in step again"
        return world

    world = loop.run(main())
    assert [line["node"] for line in events(world, "jump")] == ["e00"]


TRIANGLE = [("e00", "e01"), ("e01", "e02"), ("e00", "e02")]


def test_edges_with_different_iterations_each_end_by_their_own_plan() -> None:
    """One file says 20 periods, the others 40: nobody follows beyond its plan, or is stopped."""
    deployments = {p: make_deployment((1, 1, 1), TRIANGLE, p, "paper") for p in (20, 40)}
    loop = VirtualLoop(3, longest=0.1)

    async def main() -> TwinWorld:
        world = TwinWorld(deployments[40], Topology(deployments[40]), seed=3, loop=loop)
        for name in ("e01", "e02", "c1", "c2"):
            await world.start(name)
        while world.edges["e01"].done < 30:
            assert loop.time() < 60
            await asyncio.sleep(0.05)
        world.deployment = deployments[20]
        for name in ("e00", "c0"):
            await world.start(name)
        while not all(edge.phase == "finished" for edge in world.edges.values()):
            assert loop.time() < 120, world.where()
            await asyncio.sleep(0.05)
        return world

    world = loop.run(main())
    assert {name: edge.done for name, edge in world.edges.items()} == {
        "e00": 20, "e01": 40, "e02": 40,
    }  # fmt: skip
    told = [line for line in world.edges["e00"].log.recent if "iterations" in str(line)]
    assert told
    assert "the last one here is 20" in told[0]["reason"]
    assert world.clients["c0"].accepted == list(range(2, 21)), "the disks here begin with period 1"


@pytest.mark.parametrize(
    "clients",
    [{"c2": 2}, {"c2": PERIODS}, {"c0": PERIODS}, {"c0": 10**6, "c1": 10**6, "c2": 10**6}],
)
def test_an_edge_that_claims_others_clients_takes_them_from_nobody(clients: dict[str, int]) -> None:
    """It may host c2, whose fallback it is, and says that it hosts everybody all the time."""

    async def script(stream: Any, peer: str) -> None:
        for number in range(1, 10**6):
            ahead = {name: period + number // 10 for name, period in clients.items()}
            state = v1.LinkState(edge="e03", number=number, up=[peer], done=1, clients=ahead)
            await stream.write(v1.LinkMessage(state=state))
            await asyncio.sleep(0.02)

    def check(world: TwinWorld, liar: Liar) -> None:
        no_leap(world, liar)
        for n, name in enumerate(HONEST):
            lines = [line for line in events(world, "period") if line["node"] == name]
            assert {tuple(line["participants"]) for line in lines} == {(f"c{n}",)}

    play(script, check)


async def come_to_exchanges(stream: Any, peer: str, how: str) -> None:
    """Be in everybody's view, and answer announcements as no honest edge would."""
    state = v1.LinkState(edge="e03", number=1, up=["e00", "e02"], done=1)
    await stream.write(v1.LinkMessage(state=state))
    answered = 0
    while True:
        await asyncio.sleep(0.01)
        told = [m.announce for m in stream.told if m.WhichOneof("body") == "announce"]
        if not told or told[-1].period <= answered:
            continue
        answered, view = told[-1].period, told[-1].view
        if how == "late":
            await asyncio.sleep(0.9 * DEADLINES["exchange"])
        if how == "wrong":
            view = "another"
        if how == "states":
            state = v1.LinkState(edge="e03", number=answered, up=[peer], done=1)
            await stream.write(v1.LinkMessage(state=state))
        if how != "silent":
            announce = v1.Announce(period=answered, view=view)
            await stream.write(v1.LinkMessage(announce=announce))
        await asyncio.sleep(0.05)
        await say(stream, done=answered - 1)


LIES = [(how, by) for how in ("wrong", "late", "silent") for by in ("all-reduce", "finite-time")]


@pytest.mark.parametrize(("how", "averager"), [*LIES, ("states", "all-reduce")])
def test_a_wrong_or_late_announcement_costs_the_honest_few_periods(how: str, averager: str) -> None:
    """It reports progress all the time, so it is not simply away; or tells each another state."""
    deployment = make_deployment([1, 1, 1, 1], RING, 200, averager)
    loop = VirtualLoop(3, longest=0.01)

    async def script(stream: Any, peer: str) -> None:
        await come_to_exchanges(stream, peer, how)

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, Topology(deployment), seed=3, loop=loop)
        await Liar(world, script).listen()
        for name in (*HONEST, "c0", "c1", "c2"):
            await world.start(name)
        while not all(world.edges[name].phase == "finished" for name in HONEST):
            assert loop.time() < 60, world.where()
            await asyncio.sleep(0.1)
        return world

    world = loop.run(main())
    if how == "states":
        lines = events(world, "contradiction")
        assert [line["edge"] for line in lines] == ["e03"] * 3
        assert {line["node"] for line in lines} == set(HONEST)
        for name in HONEST:
            (warning,) = world.edges[name].warnings
            assert (warning.kind, warning.about) == ("barred", "e03")
    else:
        assert {line["peer"] for line in events(world, "missed")} >= {"e03"}
    for name in HONEST:
        periods = [line for line in events(world, "period") if line["node"] == name]
        exchanged = [line for line in periods if line["links_used"]]
        assert len(exchanged) > (50 if how == "states" else 100), (
            name,
            len(exchanged),
            len(periods),
        )
