"""A client that does what no honest one would costs the others next to nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from hostile import dial, hello, upload
from twin import Door
from twin_world import DEADLINES, SIZE, Still, TwinWorld, make_deployment, make_edges_cheap
from virtual import NODE, VirtualLoop

from sdfeel.deploy.client.client import ClientProgram
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.wire.transport import StreamLost, TurnedAway

RING = [("e00", "e01"), ("e01", "e02"), ("e00", "e02")]
PERIODS = 40


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    make_edges_cheap(monkeypatch)


def play(
    act: Callable[[TwinWorld], Awaitable[None]],
    without: tuple[str, ...] = ("c0",),
    seconds: float = 60.0,
    sizes: tuple[int, ...] = (3, 3, 3),
    **tables: Any,
) -> TwinWorld:
    """Three edges with their clients, some of which `act` plays; all periods in this time."""
    deployment = make_deployment(sizes, RING, PERIODS, "paper", **tables)
    loop = VirtualLoop(3, longest=0.1)

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, Topology(deployment), seed=3, loop=loop)
        acting = None
        for name in (*world.topology.at(0).edges, *world.topology.at(0).clients):
            if name not in without:
                await world.start(name)
            elif acting is None:
                acting = asyncio.ensure_future(act(world))
        while not all(edge.phase == "finished" for edge in world.edges.values()):
            assert loop.time() < seconds, world.where()
            await asyncio.sleep(0.1)
            if acting is not None and acting.done():
                acting.result()
        return world

    return loop.run(main())


def events(world: TwinWorld, event: str) -> list[dict[str, Any]]:
    return [
        line for edge in world.edges.values() for line in edge.log.recent if line["event"] == event
    ]


def test_silent_streams_lock_nobody_out() -> None:
    """One certificate opens two hundred streams and says nothing on them."""
    refused = []

    async def act(world: TwinWorld) -> None:
        streams = [await dial(world) for _ in range(200)]
        for stream in streams:
            try:
                while await stream.read() is not None:
                    pass
            except TurnedAway as refusal:
                refused.append(refusal.reason)

    world = play(act)
    assert sum("streams of client/c0 are open" in reason for reason in refused) == 196
    assert refused.count("no hello in time") == 4
    kinds = {line["kind"] for line in events(world, "peer-refused")}
    assert kinds == {"limit", "silent"}
    assert {len(line["participants"]) for line in events(world, "period")[5:]} == {2, 3}


def test_a_client_that_does_nothing_costs_one_short_wait() -> None:
    async def act(world: TwinWorld) -> None:
        stream = await dial(world)
        await hello(world, stream)
        while await stream.read() is not None:
            pass

    world = play(act, seconds=DEADLINES["round"] + 0.3 * PERIODS)
    missed = [line for line in events(world, "deadline") if line["node"] == "e00"]
    assert [line["missing"] for line in missed] == [["c0"]]


def test_who_delivers_again_is_waited_for_again() -> None:
    """Nothing for ten periods, then honest work, just slower than the others'."""

    async def act(world: TwinWorld) -> None:
        stream = await dial(world)
        await hello(world, stream)
        while world.edges["e00"].carrier.period < 10:
            await asyncio.sleep(0.05)
        stream.close()
        await world.start("c0")

    world = play(act, seconds=90.0)
    last = [line["participants"] for line in events(world, "period") if line["node"] == "e00"][-5:]
    assert all("c0" in names for names in last)


@pytest.mark.parametrize("values", [1, SIZE - 1, SIZE + 1, 10**9])
def test_another_models_size_is_refused_in_the_hello(values: int) -> None:
    async def act(world: TwinWorld) -> None:
        stream = await dial(world)
        await hello(world, stream, values=values)
        with pytest.raises(TurnedAway, match=f"a model of {values} values, this is {SIZE}"):
            await stream.read()

    world = play(act)
    # Who never came is waited for once; that is all it costs.
    assert len([line for line in events(world, "deadline") if line["node"] == "e00"]) <= 1


@pytest.mark.parametrize(
    ("value", "kind"),
    [(3.4e38, "magnitude"), (1e30, "magnitude"), (1e10, "magnitude"), (9e8, "norm"), (1e3, "norm")],
)
def test_a_huge_upload_is_left_out(value: float, kind: str) -> None:
    """In every period, by one of three clients: nobody's model moves."""

    async def act(world: TwinWorld) -> None:
        stream = await dial(world)
        await hello(world, stream)
        while (message := await stream.read()) is not None:
            if message.WhichOneof("body") == "task":
                await upload(world, stream, message.task.period, np.full(SIZE, value))

    world = play(act)
    assert {line["kind"] for line in events(world, "refused")} == {kind}
    for disk in world.disks.values():
        assert np.abs(disk.found.model.array()).max() < 10
    np.testing.assert_allclose(world.mean(), world.first, atol=1e-4)


def test_ordinary_differences_between_clients_are_not_left_out() -> None:
    """One learns thirty times as fast as the others."""

    class Learner(Still):
        def __init__(self, samples: int, rate: float) -> None:
            super().__init__(samples)
            self.rate = rate

        def train(self, model: np.ndarray, first: int, steps: int) -> np.ndarray:
            return model + np.float32(self.rate)

    async def act(world: TwinWorld) -> None:
        for number, name in enumerate(("c0", "c1", "c2")):
            trainer = Learner(world.deployment.client(name).samples, 0.03 if not number else 0.001)
            door: Any = Door(world.net, "client", name)
            token = NODE.set(name)
            client = ClientProgram(world.deployment, name, trainer, None, door)
            world.tasks[name] = asyncio.ensure_future(client.run())
            NODE.reset(token)

    world = play(act, without=("c0", "c1", "c2"))
    assert not events(world, "refused")
    assert world.mean().mean() > world.first.mean()


def test_a_long_dtype_is_neither_kept_nor_logged() -> None:
    async def act(world: TwinWorld) -> None:
        stream = await dial(world)
        await hello(world, stream)
        while (message := await stream.read()) is not None:
            if message.WhichOneof("body") == "task":
                period = message.task.period
                await upload(world, stream, period, np.zeros(SIZE), dtype="x" * 130_000)

    world = play(act)
    lines = events(world, "refused")
    assert {line["kind"] for line in lines} == {"dtype"}
    assert max(len(line["reason"]) for line in lines) < 300


def test_edges_that_start_after_their_clients_are_still_their_home() -> None:
    """A second later: nobody has gone elsewhere meanwhile, and no deadline is lost."""
    patient = {**DEADLINES, "home": 4.0}
    deployment = make_deployment((3, 3, 3), RING, 6, "paper", deadlines=patient)
    loop = VirtualLoop(3, longest=0.1)

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, Topology(deployment), seed=3, loop=loop)
        for name in world.topology.at(0).clients:
            await world.start(name)
        await asyncio.sleep(0.5)
        for name in world.topology.at(0).edges:
            await world.start(name)
            await asyncio.sleep(0.2)
        await world.finish(60.0)
        return world

    world = loop.run(main())
    assert not world.events.get("deadline")
    assert not [line for line in events(world, "client-up") if line["guest"]]


@pytest.mark.parametrize("away", [0.05, 3.0], ids=["at-once", "later"])
def test_an_edge_that_comes_back_holds_nobody_up(away: float) -> None:
    """Killed and started again: its clients are guests elsewhere, and come home by themselves."""
    deployment = make_deployment((2, 2, 2), RING, 200, "paper")
    loop = VirtualLoop(3, longest=0.05)
    gaps: list[float] = []

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, Topology(deployment), seed=3, loop=loop)
        await world.start_all()
        await asyncio.sleep(2.0)
        world.kill("e01")
        await asyncio.sleep(away)
        await world.start("e01")
        last, seen = loop.time(), world.edges["e00"].done
        while loop.time() < 10 + away:
            await asyncio.sleep(0.01)
            if world.edges["e00"].done != seen:
                gaps.append(loop.time() - last)
                last, seen = loop.time(), world.edges["e00"].done
        return world

    world = loop.run(main())
    assert max(gaps) < DEADLINES["round"] / 2, f"the network stood still for {max(gaps)} s"
    home = {line["client"] for line in events(world, "client-up") if line["node"] == "e01"}
    assert {"c2", "c3"} <= home


def test_a_second_process_with_a_clients_name_is_refused_while_the_first_is_there() -> None:
    refused = []

    async def act(world: TwinWorld) -> None:
        await world.start("c0")
        await asyncio.sleep(1)
        other = await dial(world)
        await hello(world, other, incarnation=1)
        try:
            while await other.read() is not None:
                pass
        except TurnedAway as refusal:
            refused.append(refusal.reason)

    world = play(act)
    assert refused == ["another process with the name 'c0' is attached"]
    assert [line["kind"] for line in events(world, "peer-refused")] == ["twice"]
    assert not events(world, "client-replaced")


def test_a_process_that_dials_again_takes_its_own_place_at_once() -> None:
    """As one does whose address has changed: its edge still holds the stream from the old one."""
    ended = []

    async def act(world: TwinWorld) -> None:
        older, newer = await dial(world), await dial(world)
        for stream in (older, newer):
            await hello(world, stream, incarnation=1)
            assert (await stream.read()).WhichOneof("body") == "hello"
        with contextlib.suppress(StreamLost):
            while await older.read() is not None:
                pass
        ended.append(asyncio.get_running_loop().time())
        newer.close()
        await world.start("c0")

    world = play(act)
    assert ended[0] < DEADLINES["ping"]
    assert [line["client"] for line in events(world, "client-replaced")] == ["c0"]


def test_who_is_silent_beyond_the_pings_deadline_makes_room_for_another_process() -> None:
    """A machine that lost its power, and came back sooner than its edge noticed."""
    back = []

    async def act(world: TwinWorld) -> None:
        await world.start("c0")
        await asyncio.sleep(1)
        world.kill("c0", quietly=True)
        await world.start("c0")
        start = asyncio.get_running_loop().time()
        while world.clients["c0"].edge != "e00":
            await asyncio.sleep(0.05)
        back.append(asyncio.get_running_loop().time() - start)

    world = play(act)
    kinds = {line["kind"] for line in events(world, "peer-refused")}
    assert kinds == {"twice"}, "refused while the stream of the dead one seemed to live"
    assert back[0] < 2 * DEADLINES["ping"] + 1


def test_coming_and_going_or_being_late_fills_no_disk() -> None:
    """Two hundred streams and as many models of a period that is over: a few lines of each."""

    async def act(world: TwinWorld) -> None:
        for _ in range(200):
            stream = await dial(world)
            await hello(world, stream, incarnation=1)
            await stream.read()
            stream.close()
        stream = await dial(world)
        await hello(world, stream, incarnation=1)
        while (await stream.read()).WhichOneof("body") != "task":
            pass
        for _ in range(200):
            await upload(world, stream, 0, np.zeros(SIZE))

    world = play(act)
    seconds = world.loop.time()
    for event in ("client-up", "client-down", "late"):
        lines = [line for line in events(world, event) if line["client"] == "c0"]
        assert 10 <= len(lines) <= 10 * (1 + seconds / 10)


@pytest.mark.parametrize("hops", [False, True], ids=["both-at-once", "one-after-the-other"])
def test_a_client_that_attends_two_edges_counts_once(hops: bool) -> None:
    """c0 works for its home and for its fallback in every period."""

    async def attend(world: TwinWorld, edge: str) -> None:
        while True:
            stream = await dial(world, "c0", edge)
            await hello(world, stream)
            with contextlib.suppress(StreamLost):
                while (message := await stream.read()) is not None:
                    kind = message.WhichOneof("body")
                    if kind == "finish":
                        return
                    if kind == "task":
                        period = message.task.period
                        await upload(world, stream, period, world.edges[edge].model.array())
                        if hops:
                            await asyncio.sleep(0.02)
                            break
            stream.close()
            await asyncio.sleep(0.01)

    async def act(world: TwinWorld) -> None:
        await asyncio.gather(attend(world, "e00"), attend(world, "e01"))

    world = play(act)
    lines = [line for line in events(world, "period") if "c0" in line["participants"]]
    twice = len(lines) - len({line["period"] for line in lines})
    assert twice <= 2, "until the two have heard of each other"
    assert "elsewhere" in {line["kind"] for line in events(world, "refused")}


def test_a_guest_that_goes_home_counts_in_every_period() -> None:
    """An honest client that moves is refused in no period that it did not attend before."""

    async def act(world: TwinWorld) -> None:
        await world.start("c0")
        await asyncio.sleep(1)
        world.net.cut("c0", "e00")
        for way in (("c0", "e00"), ("e00", "c0")):
            world.net.silence(way, 2.0)

    world = play(act)
    guests = [line for line in events(world, "client-up") if line["guest"]]
    assert {line["client"] for line in guests} == {"c0"}
    assert [line["client"] for line in events(world, "client-up") if line["node"] == "e00"].count(
        "c0"
    ) == 2
    last = [line for line in events(world, "period") if "c0" in line["participants"]]
    assert max(line["period"] for line in last) == PERIODS
