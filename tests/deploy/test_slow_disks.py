"""A slow or full disk of one edge costs the others nothing, and nothing accepted is lost."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from twin_world import TwinWorld, make_deployment
from virtual import VirtualLoop

from sdfeel.deploy.edge.saver import LAG
from sdfeel.deploy.topology import Topology

pytestmark = pytest.mark.usefixtures("cheap")

RING = [("e00", "e01"), ("e01", "e02"), ("e00", "e02")]
PERIOD = 0.4  # seconds that training takes
SECONDS = 80.0


class Slow:
    """A trainer that takes its time."""

    size = 3

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def train(self, model: Any, first: int, steps: int) -> Any:
        return model


class SlowLoop(VirtualLoop):
    """Training takes `PERIOD`; saving takes what the disk of its edge takes."""

    def __init__(self) -> None:
        super().__init__(1)
        self.world: TwinWorld

    def run_in_executor(self, executor: Any, work: Any, *args: Any) -> asyncio.Future[Any]:
        name = getattr(getattr(work, "args", [None])[0], "__qualname__", "")
        future = self.create_future()
        disk = getattr(getattr(work, "args", [None])[0], "__self__", None)
        delay = PERIOD if "_carry_out" in name else getattr(disk, "seconds", 0.001)
        self.call_later(
            delay,
            self._finish,
            future,
            lambda: ((None, None), []) if future.done() else self._do(work, args),
        )
        return future


def play(trouble: Callable[[TwinWorld], Awaitable[None]], **options: Any) -> TwinWorld:
    """Three edges with two clients each; what happens in SECONDS while there is trouble."""
    loop = SlowLoop()
    deployment = make_deployment((2, 2, 2), RING, 10**5, "paper", guests=False, **options)

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, Topology(deployment), 1, loop)
        await world.start_all()
        await asyncio.sleep(5)
        await trouble(world)
        return world

    return loop.run(main())


def periods(world: TwinWorld, name: str, start: float) -> int:
    return world.edges[name].carrier.period - int(start)


def disk_of(world: TwinWorld, name: str) -> Any:
    return world.edges[name].store


@pytest.mark.parametrize("seconds", [1.0, 3.0])
@pytest.mark.parametrize("averager", ["paper", "all-reduce"])
def test_a_slow_disk_costs_the_others_less_than_five_percent(averager: str, seconds: float) -> None:
    """A checkpoint takes one second, or three: then less than ten percent."""
    counts: dict[str, int] = {}

    async def trouble(world: TwinWorld) -> None:
        at = {name: edge.carrier.period for name, edge in world.edges.items()}
        await asyncio.sleep(SECONDS)
        calm = {name: e.carrier.period - at[name] for name, e in world.edges.items()}
        used = max(link.used for link in world.edges["e02"].links.values())
        disk_of(world, "e02").seconds = seconds
        at = {name: edge.carrier.period for name, edge in world.edges.items()}
        await asyncio.sleep(SECONDS)
        for name in ("e00", "e01"):
            counts[name] = world.edges[name].carrier.period - at[name]
            assert counts[name] >= (0.95 if seconds == 1 else 0.9) * calm[name]
        took_part = max(link.used for link in world.edges["e02"].links.values()) - used
        assert took_part > 0.1 * counts["e00"], "it still takes part"

    play(trouble, schedule={"iterations": 10**5, "averager": averager})


@pytest.mark.parametrize("averager", ["paper", "all-reduce"])
def test_a_full_disk_costs_the_others_nothing_and_its_edge_says_that_it_is_paused(
    averager: str,
) -> None:
    async def trouble(world: TwinWorld) -> None:
        at = {name: edge.carrier.period for name, edge in world.edges.items()}
        await asyncio.sleep(SECONDS)
        calm = {name: e.carrier.period - at[name] for name, e in world.edges.items()}
        edge, disk = world.edges["e02"], disk_of(world, "e02")
        save = disk.save

        def full(_checkpoint: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        disk.save = full
        at = {name: edge.carrier.period for name, edge in world.edges.items()}
        done = edge.done
        await asyncio.sleep(SECONDS)
        assert edge.phase == "paused"
        assert not edge.carrier.is_ready
        assert edge.carrier.period - done <= LAG + 2
        assert edge.done == done
        for name in ("e00", "e01"):
            assert world.edges[name].carrier.period - at[name] >= 0.95 * calm[name]
            assert world.edges[name].links["e02"].is_paused
        disk.save = save
        await asyncio.sleep(10)
        assert edge.phase != "paused"
        assert abs(edge.carrier.period - world.edges["e00"].carrier.period) <= 1
        assert not world.edges["e00"].links["e02"].is_paused

    play(trouble, schedule={"iterations": 10**5, "averager": averager})


def test_an_edge_that_its_slow_disk_holds_up_is_not_ready() -> None:
    """Nor is it while nothing is wrong with the disk but its speed; and the log says both ends."""
    phases: set[tuple[bool, bool]] = set()

    async def trouble(world: TwinWorld) -> None:
        edge = world.edges["e02"]
        disk_of(world, "e02").seconds = 4.0
        for _ in range(200):
            await asyncio.sleep(0.1)
            phases.add((edge.phase == "paused", edge.carrier.is_ready))
        events = [line["event"] for line in edge.log.recent]
        assert 0 <= events.count("disk-slow") - events.count("disk-caught-up") <= 1
        assert "disk-slow" in events
        assert "disk-problem" not in events

    play(trouble)
    assert phases == {(True, False), (False, True)}


def test_nothing_is_acknowledged_before_it_is_on_the_disk() -> None:
    async def trouble(world: TwinWorld) -> None:
        edge, disk = world.edges["e02"], disk_of(world, "e02")
        disk.seconds = 0.9
        accepted: list[tuple[int, int]] = []
        for _ in range(400):
            await asyncio.sleep(0.05)
            for client in ("c4", "c5"):
                last = max(world.clients[client].accepted, default=0)
                accepted.append((last, edge.done))
        assert all(last <= done for last, done in accepted)
        assert accepted[-1][0] > accepted[0][0]

    play(trouble)


def test_a_client_that_keeps_its_compression_error_hears_of_the_last_model_before_its_next() -> (
    None
):
    """Else it would add an error to its next message that is in the last one already."""

    async def trouble(world: TwinWorld) -> None:
        disk_of(world, "e02").seconds = 0.9
        edge = world.edges["e02"]
        for _ in range(200):
            await asyncio.sleep(0.05)
            assert len(edge.carrier.saver.unsaved) <= 1

    play(trouble, codecs={"up": "int4"})
