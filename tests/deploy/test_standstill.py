"""A period counts where somebody in the network took part in it: nobody trains for nobody."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from twin_world import TURNS, TwinWorld, make_deployment
from virtual import VirtualLoop

from sdfeel.deploy.topology import Topology

pytestmark = pytest.mark.usefixtures("cheap")

LINKS = [("e00", "e01"), ("e01", "e02"), ("e02", "e03")]
FREE: dict[str, Any] = {
    "pace": {"name": "asynchronous", "mixing": "mean-preserving"},
    "guests": False,
}


def world_of(sizes: tuple[int, ...], loop: VirtualLoop, **options: Any) -> TwinWorld:
    averager = options.pop("averager", "paper")
    if "pace" in options:
        options["pace"] = {**options["pace"], "deadline": TURNS[: len(sizes)]}
    deployment = make_deployment(sizes, LINKS[: len(sizes) - 1], 60, averager, **options)
    return TwinWorld(deployment, Topology(deployment), 1, loop)


def lines(world: TwinWorld, event: str) -> list[dict[str, Any]]:
    edges = [line for edge in world.edges.values() for line in edge.log.recent]
    return [line for line in [*world.past, *edges] if line["event"] == event]


def empty_periods(world: TwinWorld) -> set[int]:
    """Those in which no edge had a participant."""
    participants: dict[int, int] = defaultdict(int)
    for line in lines(world, "period"):
        participants[line["period"]] += len(line["participants"])
    return {period for period, count in participants.items() if not count}


async def until(world: TwinWorld, period: int) -> None:
    while min(edge.done for edge in world.edges.values()) < period:
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"averager": "all-reduce"},
        {"schedule": {"iterations": 60, "tau2": 3}},
        {"guests": False},
        FREE,
    ],
    ids=["paper", "all-reduce", "tau2", "no guests", "turns"],
)
def test_without_any_client_the_network_stands_still_and_goes_on_with_the_first(
    options: dict[str, Any],
) -> None:
    loop = VirtualLoop(1, longest=0.02)

    async def main() -> None:
        world = world_of((1, 2, 1), loop, **options)
        await world.start_all()
        await until(world, 10)
        for name in world.topology.at(0).clients:
            world.kill(name)
        await asyncio.sleep(5)
        stood = [edge.done for edge in world.edges.values()]
        await asyncio.sleep(200)
        assert [edge.done for edge in world.edges.values()] == stood
        assert {edge.phase for edge in world.edges.values()} == {"no-clients"}
        assert {line["node"] for line in lines(world, "no-clients")} == set(world.edges)
        await world.start("c1")
        await until(world, max(stood) + 5)
        await world.start_all()
        await world.finish(400.0)
        if "pace" not in options:
            assert not empty_periods(world)

    loop.run(main())


@pytest.mark.parametrize("options", [{}, FREE], ids=["rounds", "turns"])
def test_edges_without_clients_follow_the_only_one_that_trains(options: dict[str, Any]) -> None:
    """Also those that are three links away."""
    loop = VirtualLoop(2, longest=0.02)

    async def main() -> None:
        world = world_of((1, 1, 1, 1), loop, **{"guests": False, **options})
        for name in world.topology.at(0).edges:
            await world.start(name)
        await world.start("c0")
        await until(world, 20)
        assert not lines(world, "jump")
        trained = {line["node"] for line in lines(world, "period") if line["participants"]}
        assert trained == {"e00"}
        done = [edge.done for edge in world.edges.values()]
        plans = [world.topology.plan(name) for name in world.edges]
        if "pace" in options:  # nobody runs ahead of it by more than its own turn
            shares = [d / plan for d, plan in zip(done, plans, strict=True)]
            assert max(shares) <= shares[0] + 1 / min(plans)
        else:
            assert max(done) <= done[0] + 1

    loop.run(main())


def test_edges_that_are_back_before_their_clients_wait_for_them() -> None:
    loop = VirtualLoop(3, longest=0.02)

    async def main() -> None:
        world = world_of((1, 1, 1), loop)
        await world.start_all()
        await until(world, 10)
        for name in (*world.topology.at(0).clients, *world.topology.at(0).edges):
            world.kill(name)
        for name in world.topology.at(0).edges:
            await world.start(name)
        await asyncio.sleep(200)
        assert max(edge.done for edge in world.edges.values()) <= 12
        assert {edge.phase for edge in world.edges.values()} == {"no-clients"}
        await world.start_all()
        await world.finish(400.0)
        assert not empty_periods(world)

    loop.run(main())


def test_clients_that_are_there_and_never_answer_do_not_make_periods() -> None:
    """The network waits for the first model, and then for the others as usual."""
    loop = VirtualLoop(4, longest=0.02)

    async def main() -> None:
        world = world_of((2, 1), loop, guests=False)
        await world.start_all()
        await until(world, 10)
        for name, client in world.clients.items():
            world.net.silent |= {(name, edge) for edge in world.edges}
            assert client.edge is not None
        await asyncio.sleep(20)  # silent for `ping` would be noticed; the deadline has passed
        stood = max(edge.done for edge in world.edges.values())
        await asyncio.sleep(100)
        assert max(edge.done for edge in world.edges.values()) == stood
        assert any(line.get("silent") for line in lines(world, "no-clients"))
        for way in list(world.net.silent):
            world.net.silence(way, 0.0)
        await world.finish(400.0)
        assert not empty_periods(world)

    loop.run(main())
