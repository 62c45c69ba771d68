"""Whole deployments on the network in memory: thousands of histories with faults.

Real edges, links, exchanges and clients; only the network, the disk and the clock are not. A
failure names its seed, and the seed brings it back.
"""

from __future__ import annotations

import datetime
import gc
import os
from collections import Counter

import numpy as np
import pytest
from twin_world import (
    TwinWorld,
    make_deployment,
    one_history,
    run_schedule,
    run_secured,
    trouble,
)
from virtual import VirtualLoop

from sdfeel.deploy.peers import agreement
from sdfeel.deploy.peers.agreement import Input, Standing
from sdfeel.deploy.topology import Topology

# The suite plays other histories every day, `make test-long` and `benchmarks/histories.py` more.
BASE = int(os.environ.get("SDFEEL_SEED") or datetime.date.today().toordinal())
PARTS, PART = 4, 2500 if os.environ.get("SDFEEL_LONG") else 375
FIXED = 250
pytestmark = pytest.mark.usefixtures("cheap")


def play(seed: int) -> TwinWorld:
    return one_history(seed, run_schedule)


def test_histories_with_faults() -> None:
    """The weighted mean is kept, all periods are made, what is settled is on both disks."""
    seen: Counter[str] = Counter()
    for seed in range(FIXED):
        world = play(seed)
        assert world.checker.looks
        seen.update(world.events)
    for event in ("taken-back", "repaired", "undecided", "jump", "deadline", "link-down"):
        assert seen[event], f"{event} never happened: {seen}"


@pytest.mark.parametrize("part", range(PARTS))
def test_histories_with_certificates_torn_disks_and_wrong_clocks(part: int) -> None:
    """Other seeds every day; `benchmarks/histories.py --seed N --histories 1` repeats one."""
    seen: Counter[str] = Counter()
    first = BASE * 100_000 + part * PART
    for seed in range(first, first + PART):
        world = one_history(seed, run_secured)
        assert world.checker.looks, f"seed {seed}"
        seen.update(world.events)
        if seed % 100 == 0:
            gc.collect()
    for event in ("taken-back", "repaired", "jump", "peer-refused", "checkpoint-damaged"):
        assert seen[event], f"{event} never happened from seed {first} on: {seen}"


def test_a_seed_decides_everything() -> None:
    def trace(seed: int) -> list[tuple[object, ...]]:
        world = play(seed)
        return [
            (world.loop.time(), line["event"], line.get("peer"), line.get("period"))
            for edge in world.edges.values()
            for line in edge.log.recent
        ]

    secured = [one_history(seed, run_secured).loop.time() for seed in range(10)]
    assert secured == [one_history(seed, run_secured).loop.time() for seed in range(10)]
    traces = [trace(seed) for seed in range(20)]
    assert traces == [trace(seed) for seed in range(20)]
    assert traces[0] != traces[3]


@pytest.mark.parametrize(
    "line",
    [
        (Standing.COMMITTED, Input.REBORN),
        (Standing.IN_DOUBT, Input.COMMIT),
        (Standing.IN_DOUBT, Input.MET),
    ],
    ids=lambda line: f"{line[0].value}, {line[1].value}",
)
def test_the_checker_sees_a_broken_agreement(
    line: tuple[Standing, Input], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing happened there, some history must be found out."""
    monkeypatch.setitem(agreement.TABLE, line, (line[0], ()))
    with pytest.raises(AssertionError, match="seed"):
        [play(seed) for seed in range(3000)]


def test_twenty_edges_and_two_hundred_clients_with_faults() -> None:
    """On a ring with chords, with trouble all the time until the last periods."""
    names = [f"e{n:02d}" for n in range(20)]
    links = [(names[n], names[(n + 1) % 20]) for n in range(20)]
    links += [(names[n], names[n + 10]) for n in range(10)]
    deployment = make_deployment([10] * 20, links, periods=12, averager="paper", alpha=2)
    topology = Topology(deployment)
    loop = VirtualLoop(5, longest=0.1)

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, topology, seed=5, loop=loop)
        await world.start_all()
        await trouble(world, 8.0, 0.1)
        await world.finish(400.0)
        world.checker.calm()
        return world

    world = loop.run(main())
    assert world.checker.looks > 100
    assert world.events.get("taken-back", 0) + world.events.get("resolved", 0) > 0
    models = np.stack([disk.found.model.array() for disk in world.disks.values()])
    apart = np.abs(models - models.mean(axis=0)).max()
    assert apart < 1.0, "they have come closer to each other"
