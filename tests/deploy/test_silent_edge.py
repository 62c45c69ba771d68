"""One edge comes to exchanges that need everybody, and does not do its part: the others go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from liar import Liar, Silent
from twin_world import TwinWorld, make_deployment, make_edges_cheap
from virtual import VirtualLoop

from sdfeel.deploy.peers.damper import DOUBLINGS, MOST, REFUSED, Damper
from sdfeel.deploy.topology import Topology

PERIODS = 150
# The liar is the last: a leaf of the tree on the ring, its root in the wheel.
RING = [("e00", "e01"), ("e01", "e02"), ("e02", "e03"), ("e00", "e03")]
WHEEL = [
    *RING[:3], ("e00", "e03"), ("e00", "e04"), ("e01", "e04"), ("e02", "e04"), ("e03", "e04"),
]  # fmt: skip
PATH = [("e00", "e01"), ("e01", "e02"), ("e02", "e03"), ("e03", "e04"), ("e04", "e05")]


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    make_edges_cheap(monkeypatch)


LIAR = ["e03"]


def play(how: str, links: list[tuple[str, str]], averager: str, seconds: float) -> TwinWorld:
    count = 1 + max(int(name[1:]) for link in links for name in link)
    deployment = make_deployment([1] * count, links, PERIODS, averager)
    topology = Topology(deployment)
    LIAR[0] = topology.at(0).edges[-1]
    honest = topology.at(0).edges[:-1]
    loop = VirtualLoop(3, longest=0.01)

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, topology, seed=3, loop=loop)
        await Liar(world, Silent(how, LIAR[0], topology.at(0).neighbours(LIAR[0]))).listen()
        for name in (*honest, *(f"c{n}" for n in range(len(honest)))):
            await world.start(name)
        while not all(world.edges[name].phase == "finished" for name in honest):
            assert loop.time() < seconds, world.where()
            await asyncio.sleep(0.1)
        return world

    return loop.run(main())


def lines(world: TwinWorld, event: str, name: str) -> list[dict[str, Any]]:
    return [line for line in world.edges[name].log.recent if line["event"] == event]


CASES = [
    ("nothing", RING, "all-reduce"),
    ("nothing", RING, "finite-time"),
    ("nothing", WHEEL, "all-reduce"),
    ("nothing", PATH, "all-reduce"),
    ("model", RING, "all-reduce"),
    ("model", RING, "finite-time"),
    ("model", WHEEL, "all-reduce"),
    ("other", RING, "all-reduce"),
    ("refuses", RING, "all-reduce"),
    ("refuses", WHEEL, "all-reduce"),
    ("half", RING, "all-reduce"),
    ("flaps", RING, "all-reduce"),
]


@pytest.mark.parametrize(
    ("how", "links", "averager"),
    CASES,
    ids=lambda case: case if isinstance(case, str) else f"{len(case)}",
)
def test_the_honest_leave_it_out_and_stay_together(
    how: str, links: list[tuple[str, str]], averager: str
) -> None:
    """Before, one honest edge was left out by the others for good: 0 exchanges of 56."""
    world = play(how, links, averager, seconds=60.0)
    liar, honest = LIAR[0], world.topology.at(0).edges[:-1]
    together = {}
    for name in honest:
        used = [line["period"] for line in lines(world, "period", name) if line["links_used"]]
        together[name] = len(used)
        left_out = {line["peer"] for line in lines(world, "left-out", name)}
        assert left_out <= {liar}, "no honest edge is taken for one that holds everybody up"
    assert min(together.values()) > 0.75 * PERIODS, together
    near = world.topology.at(0).neighbours(liar)
    assert any(lines(world, "left-out", name) for name in near)


def test_a_damper_leaves_out_for_twice_as_long_each_time_and_forgives() -> None:
    damper = Damper()
    lengths = []
    number = 0
    for _ in range(DOUBLINGS + 2):
        while not (exchanges := damper.failed(number)):
            number += 1
        lengths.append(exchanges)
        damper.came(number)
        damper.begin(number + 1)
        assert damper.is_out, "not yet"
        number += exchanges
        damper.came(number)
        damper.begin(number)
        assert damper.is_out, "not in the middle of an exchange"
        number += 1
        damper.begin(number)
        assert not damper.is_out
    assert lengths == [2, 4, 8, 16, 32, 64, 64, 64]
    for _ in range(200):
        damper.went_well()
    assert not any(damper.failed(number) for _ in range(2))
    assert damper.failed(number) == 2


def test_refusals_count_less_than_silence_and_add_up() -> None:
    damper = Damper()
    refusals = int(MOST / REFUSED)
    assert not any(damper.failed(1, REFUSED) for _ in range(refusals - 1))
    assert damper.failed(1, REFUSED) == 2


def test_one_failure_in_ten_exchanges_is_borne() -> None:
    damper = Damper()
    for number in range(1000):
        assert not damper.failed(number)
        for _ in range(9):
            damper.went_well()
