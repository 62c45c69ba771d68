"""Those who lost the same edge at the same moment do not all come back at the same moment."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from twin import Door
from twin_world import TwinWorld, make_deployment
from virtual import VirtualLoop

from sdfeel.deploy.topology import Topology
from sdfeel.deploy.waiting import Background
from sdfeel.deploy.wire.transport import Call

pytestmark = pytest.mark.usefixtures("cheap")
CLIENTS = 10


def attempts(seed: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    """When each client and each neighbour dials an edge that has died."""
    deployment = make_deployment(
        [1, CLIENTS], [("e00", "e01")], 10**6, "paper", guests=False, deadlines=DEADLINES
    )
    loop = VirtualLoop(seed, longest=0.3)
    times: dict[str, list[float]] = {}
    dial = Door.dial

    async def noting(self: Door, edge: str, call: Call) -> object:
        if edge == "e01" and edge not in self.net.doors:
            times.setdefault(self.name, []).append(loop.time())
        return await dial(self, edge, call)

    async def main() -> None:
        world = TwinWorld(deployment, Topology(deployment), seed, loop)
        await world.start_all()
        await asyncio.sleep(3.0)
        world.kill("e01")
        await asyncio.sleep(20 * RETRY)

    with monkeypatch.context() as patched:
        patched.setattr(Door, "dial", noting)
        loop.run(main())
    return times


RETRY = 4.0
DEADLINES = {"round": 1.5, "exchange": 2.0, "ping": 0.4, "retry": RETRY, "home": 10.0}


def test_attempts_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    times = attempts(1, monkeypatch)
    assert len(times) == CLIENTS + 1, "the clients and the neighbour"
    pauses = [b - a for each in times.values() for a, b in pairwise(each)]
    assert all(RETRY / 2 <= pause <= RETRY + 0.1 for pause in pauses)
    fifth = sorted(each[4] for name, each in times.items() if name != "e00")
    assert min(b - a for a, b in pairwise(fifth)) > 0
    assert fifth[-1] - fifth[0] > RETRY / 2


def test_a_seed_decides_when(monkeypatch: pytest.MonkeyPatch) -> None:
    assert attempts(1, monkeypatch) == attempts(1, monkeypatch) != attempts(2, monkeypatch)


def test_what_a_background_task_raises_ends_the_main_work() -> None:
    """A watch that died silently left an edge that no longer noticed renewals."""

    async def fail() -> None:
        raise ValueError("a bug")

    async def run() -> None:
        background = Background()
        background.spawn(fail())
        await background.guard(asyncio.Event().wait())  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="a bug"):
        asyncio.run(run())


def test_a_background_task_that_ends_well_or_is_ended_is_no_failure() -> None:
    async def run() -> str:
        background = Background()
        background.spawn(asyncio.sleep(0))
        background.spawn(asyncio.Event().wait())  # type: ignore[arg-type]
        await background.guard(asyncio.sleep(0))
        await background.end()
        return "ended"

    assert asyncio.run(run()) == "ended"
