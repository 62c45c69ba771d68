"""The weighted mean is kept also when both ends of a link die around an exchange.

The clients here leave their models as they are and the edges begin apart, so the weighted mean of
the servers' models must be the same number for ever; only a link used by one side could move it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from harness import World, deploy

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.files import read_model
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import BLOCK, as_vector, combine
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology

# Long enough for a busy machine to make every exchange; `resolved` waits for one in vain.
PATIENT = {"round": 3.0, "exchange": 4.5, "ping": 2.0}


class Still(toy.ToyTrainer):
    def train(self, model: np.ndarray, first: int, steps: int) -> np.ndarray:
        return model


def store_of(deployment: Deployment, edge: str) -> Store:
    first = read_model(deployment.folder / "initial.safetensors")
    return Store.of(deployment, edge, deployment.folder / "state" / edge, first)


def apart(folder: Path, size: int = toy.SIZE, **options: Any) -> Deployment:
    """Two edges that have finished period 1 with models of their own."""
    deployment = deploy(folder, size, sizes=(1, 2), periods=8, deadlines=PATIENT, **options)
    for number, edge in enumerate(deployment.edges):
        model = as_vector(np.random.default_rng(number).normal(size=size))
        store = store_of(deployment, edge.name)
        store.acquire()
        store.save(EdgeCheckpoint(1, model))
        store.release()
    return deployment


def mean(deployment: Deployment) -> np.ndarray:
    """Of what is on the disks."""
    topology, models = Topology(deployment), []
    for name in topology.at(0).edges:
        found, _ = store_of(deployment, name).load(None)
        assert found is not None
        models.append(found.model)
    return combine(models, [topology.at(0).share(name) for name in topology.at(0).edges]).array()


class Quiet(World):
    """All clients leave their models alone."""

    def start_clients(self) -> None:
        for number, client in enumerate(self.deployment.clients):
            self.start_client(client.name, Still(number, client.samples, self.size))

    async def kill_all(self) -> None:
        for name in [*self.clients, *self.edges]:
            await self.kill(name)


def hold_save(world: World, name: str) -> asyncio.Event:
    """The edge waits for ever for its disk, which takes no other checkpoint."""
    held = asyncio.Event()

    async def never(*_: object) -> None:
        held.set()
        await asyncio.sleep(60)

    saver = world.edges[name].carrier.saver
    saver.lag, saver._write = 0, never  # type: ignore[method-assign]
    return held


def lose_decision(world: World) -> None:
    """a's word COMMIT never reaches b, nor does anything that it says later."""
    link = world.edges["a"].links["b"]
    said, lost = link.say, []

    def silent(decision: v1.Decision) -> None:
        if decision.word == v1.Word.COMMIT:
            lost.append(decision)
        if not lost:
            said(decision)

    link.say = silent  # type: ignore[method-assign]


async def one_has_it_on_disk(world: Quiet) -> None:
    held = hold_save(world, "b")
    await world.until(lambda: held.is_set() and world.edges["a"].done >= 2)


async def one_left_it_out(world: Quiet) -> None:
    lose_decision(world)
    await world.until(lambda: all(edge.done >= 2 for edge in world.edges.values()))
    assert world.events("undecided", "b")


async def both_have_it(world: Quiet) -> None:
    await world.until(lambda: all(edge.done >= 2 for edge in world.edges.values()))


@pytest.mark.parametrize("alone", ["", "b"], ids=["together", "b-first"])
@pytest.mark.parametrize(
    ("averager", "alpha"), [("paper", 1), ("paper", 2), ("all-reduce", 1)], ids=str
)
@pytest.mark.parametrize(
    ("crash", "event"),
    [(one_has_it_on_disk, "taken-back"), (one_left_it_out, "resolved"), (both_have_it, "")],
    ids=["taken-back", "resolved", "whenever"],
)
def test_both_ends_die_and_the_mean_is_kept(
    tmp_path: Path, crash: Callable[[Quiet], Any], event: str, averager: str, alpha: int, alone: str
) -> None:
    # The larger lives in files, which are kept rather than written again.
    size = toy.SIZE if alpha == 1 else 2 * BLOCK + 1
    deployment = apart(tmp_path, size, alpha=alpha, averager=averager)
    wanted = mean(deployment)

    async def run() -> None:
        async with Quiet(deployment) as world:
            world.size = size
            for name in "ab":
                await world.start_edge(name)
            world.start_clients()
            await crash(world)
            await world.kill_all()
            world.past.clear()
            if event:
                assert np.abs(mean(deployment) - wanted).max() > 1e-2, "nothing to make good"
            if alone:
                # It has long been past the exchange in question when the other comes back.
                await world.start_edge(alone)
                world.start_clients()
                await world.until(lambda: world.edges[alone].done >= 4)
            for name in "ab".replace(alone, ""):
                await world.start_edge(name)
            if not alone:
                world.start_clients()
            await world.finish()
            if event:
                assert world.events(event)
                assert world.events("repaired")

    asyncio.run(run())
    np.testing.assert_allclose(mean(deployment), wanted, atol=1e-5)
