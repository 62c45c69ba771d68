"""Two versions of the program in one deployment: nodes are upgraded one after the other."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from twin import End, Net
from twin_world import TwinWorld, make_deployment, make_edges_cheap
from virtual import VirtualLoop

from sdfeel.deploy.edge.edge import EdgeServer
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology

RING = [("e00", "e01"), ("e01", "e02"), ("e00", "e02")]
# By message, what the version before this one does not know. A field that is added stands here
# until that version is no longer to be met; one without which nodes do not understand each other
# needs another `PROTOCOL`, which is refused by name.
NEW = {"state": ["file"], "decision": ["hops"], "progress": ["leaving"]}


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    make_edges_cheap(monkeypatch)


def as_older(message: Any) -> Any:
    """What is left of a message at a node that does not know all of its fields."""
    kind = message.WhichOneof("body")
    if kind not in NEW:
        return message
    known = type(message)()
    known.CopyFrom(message)
    for field in NEW[kind]:
        getattr(known, kind).ClearField(field)
    return known


def uses(edge: EdgeServer) -> int:
    return sum(link.used for link in edge.links.values())


@pytest.mark.parametrize("averager", ["paper", "all-reduce"])
def test_one_node_after_the_other(averager: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All exchange with all at every moment, and the weighted mean is kept."""
    older = {"e00", "e01", "e02", "c0"}
    send = Net.send

    def send_what_is_known(self: Net, end: End, message: Any) -> None:
        is_older = end.me in older or end.peer in older
        send(self, end, as_older(message) if is_older else message)

    monkeypatch.setattr(Net, "send", send_what_is_known)
    deployment = make_deployment([1, 1, 1], RING, 160, averager)
    loop = VirtualLoop(3, longest=0.1)

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, Topology(deployment), seed=3, loop=loop)
        await world.start_all()
        for name in sorted(older):
            world.kill(name)
            older.discard(name)
            await world.start(name)
            await asyncio.sleep(1.2)  # to be back
            used = {one: uses(edge) for one, edge in world.edges.items()}
            await asyncio.sleep(0.5)
            for one, edge in world.edges.items():
                assert all(link.up for link in edge.links.values()), (name, one)
                assert uses(edge) > used[one], (name, one)
        await world.finish(100.0)
        return world

    world = loop.run(main())
    np.testing.assert_allclose(world.mean(), world.first, atol=1e-4)
    kinds = {line.get("kind") for edge in world.edges.values() for line in edge.log.recent}
    assert not kinds & {"protocol", "deployment", "gossip", "signature"}


def test_what_is_signed_is_what_the_version_before_signed() -> None:
    """While nobody has a newer file: else each version would refuse the other's states."""
    deployment = make_deployment([1, 1, 1], RING, 10, "all-reduce")
    loop = VirtualLoop(3)

    async def main() -> bytes:
        world = TwinWorld(deployment, Topology(deployment), seed=3, loop=loop)
        await world.start("e00")
        states = world.edges["e00"].states
        states.agreed = "twin"
        state = v1.LinkState(edge="e01", number=7, up=["e00"], done=3, clients={"c1": 2}, life=5)
        return states._text(state)

    assert loop.run(main()) == b"('twin', 'e01', 7, ['e00'], 3, [('c1', 2)], 0.0, 5)"
