"""An edge that stops, dies or is cut off holds nobody up, whenever that is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from twin_world import DEADLINES, TwinWorld, make_deployment
from virtual import VirtualLoop

from sdfeel.deploy.peers.exchange_timeout import LOST_SECONDS
from sdfeel.deploy.topology import Topology

pytestmark = pytest.mark.usefixtures("cheap")

RING = [("e00", "e01"), ("e01", "e02"), ("e00", "e02")]
NOTICED = 2 * DEADLINES["ping"]  # when pings have failed
SLACK = 1.25
SEEDS = 8


def longest_gap(averager: str, how: str, seed: int) -> float:
    """Of the neighbours' periods, around the moment in which e01 goes and does not come back."""
    deployment = make_deployment(
        (1, 1, 1), RING, 10**5, averager, guests=False, deadlines={**DEADLINES, "exchange": 60.0}
    )
    loop = VirtualLoop(seed, longest=0.05)

    async def main() -> float:
        world = TwinWorld(deployment, Topology(deployment), seed, loop)
        world.checker.saved = lambda _name: None  # type: ignore[method-assign] # for short histories
        await world.start_all()
        await asyncio.sleep(3 + loop.time() + world.chance.random())
        if how == "stop":
            edge = world.edges["e01"]
            world.tasks["e01"].cancel()
            leaving: Any = asyncio.ensure_future(edge.stop())
            assert leaving is not None
        elif how == "cut":
            for way in (("e01", "e00"), ("e01", "e02"), ("e00", "e01"), ("e02", "e01")):
                world.net.silence(way, 10**4)
        else:
            world.kill("e01", quietly=how == "power")
        gap, last = 0.0, loop.time()
        at = {name: world.edges[name].carrier.period for name in ("e00", "e02")}
        end = loop.time() + 6
        while loop.time() < end:
            await asyncio.sleep(0.05)
            now = {name: world.edges[name].carrier.period for name in at}
            if all(now[name] > at[name] for name in at):
                gap, last, at = max(gap, loop.time() - last), loop.time(), now
        return max(gap, loop.time() - last)

    return loop.run(main())


@pytest.mark.parametrize("averager", ["paper", "all-reduce"])
@pytest.mark.parametrize(
    ("how", "noticed"),
    [("stop", 0.0), ("kill", LOST_SECONDS), ("power", NOTICED + LOST_SECONDS),
     ("cut", NOTICED + LOST_SECONDS)],
)  # fmt: skip
def test_neighbours_go_on_at_once_or_as_soon_as_they_notice(
    averager: str, how: str, noticed: float
) -> None:
    """Not after `exchange`, which is a minute here."""
    gaps = [longest_gap(averager, how, seed) for seed in range(SEEDS)]
    assert max(gaps) <= noticed + SLACK
