"""One edge comes to exchanges that need everybody, and does not do its part: the others go on."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from liar import Liar
from twin_world import SIZE, TwinWorld, make_deployment, make_edges_cheap
from virtual import VirtualLoop

from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.peers.damper import DOUBLINGS, MOST, REFUSED, Damper
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.wire import frames

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


class Silent:
    """What the liar does on each of its streams, once it has announced the same as the others.

    how   "nothing": no model · "model": its model, and no vote or decision · "other": a model of
          another part of the network · "refuses": at once · "half": its part in every second
          exchange, as far as its model · "flaps": ends its stream
    """

    def __init__(self, how: str, neighbours: list[str]) -> None:
        self.how, self.neighbours = how, neighbours

    async def __call__(self, stream: Any, peer: str) -> None:
        state = v1.LinkState(edge=LIAR[0], number=1, up=self.neighbours, done=1)
        await stream.write(v1.LinkMessage(state=state))
        announced = (0, "")
        while True:
            await asyncio.sleep(0.002)
            told = [m.announce for m in stream.told if m.WhichOneof("body") == "announce"]
            if not told or (told[-1].period, told[-1].view) == announced:
                continue
            announced = told[-1].period, told[-1].view
            await stream.write(v1.LinkMessage(announce=told[-1]))
            await self._act(stream, *announced)
            progress = v1.Progress(done=announced[0] - 1)
            await stream.write(v1.LinkMessage(progress=progress))

    async def _act(self, stream: Any, period: int, view: str) -> None:
        if self.how == "flaps":
            await asyncio.sleep(0.001)
            stream.close("gone")
        elif self.how == "refuses":
            refuse = v1.Decision(period=period, word=v1.Word.REFUSE, reason="no")
            await stream.write(v1.LinkMessage(decision=refuse))
        elif self.how in ("model", "other") or (self.how == "half" and period % 2):
            vector = as_vector(np.zeros(SIZE))
            shown = view if self.how != "other" else "another"
            for stage in (v1.Stage.UP, v1.Stage.SWAP, v1.Stage.DOWN):
                header = frames.header(vector, period, view=shown, stage=stage)
                await stream.write(v1.LinkMessage(model=header))


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
        await Liar(world, Silent(how, topology.at(0).neighbours(LIAR[0]))).listen()
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
