"""The weighted mean is kept also when both ends of a link die around an exchange.

The clients here leave their models as they are and the edges begin apart, so the weighted mean of
the servers' models must be the same number for ever; only a link used by one side could move it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from harness import World, deploy

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.link.ledger import PERIODS, Doubt, Memory
from sdfeel.deploy.model.files import read_model
from sdfeel.deploy.model.store import Checkpoint, Store
from sdfeel.deploy.model.vectors import BLOCK, Change, as_vector, combine
from sdfeel.deploy.observe.logs import Log
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
        store.save(Checkpoint(1, model))
        store.release()
    return deployment


def mean(deployment: Deployment) -> np.ndarray:
    """Of what is on the disks."""
    topology, models = Topology(deployment), []
    for name in topology.edges:
        found, _ = store_of(deployment, name).load(None)
        assert found is not None
        models.append(found.model)
    return combine(models, [topology.share(name) for name in topology.edges]).array()


class Quiet(World):
    """All clients leave their models alone."""

    def start_clients(self) -> None:
        for number, client in enumerate(self.deployment.clients):
            self.start_client(client.name, Still(number, client.samples, self.size))

    async def kill_all(self) -> None:
        for name in [*self.clients, *self.edges]:
            await self.kill(name)


def hold_save(world: World, name: str) -> asyncio.Event:
    """The edge hangs for ever where it would write its next checkpoint."""
    held = asyncio.Event()

    async def never(*_: object) -> None:
        held.set()
        await asyncio.sleep(60)

    world.edges[name].rounds._save = never  # type: ignore[method-assign]
    return held


def stop_after(world: World, period: int) -> None:
    """No edge writes a checkpoint of a later period: each hangs there until it is killed."""
    for edge in world.edges.values():
        edge.rounds._save = _up_to(edge, period, edge.rounds._save)  # type: ignore[method-assign]


def _up_to(edge: Any, period: int, save: Callable[..., Any]) -> Callable[..., Any]:
    async def saved(*given: object) -> None:
        if edge.done >= period:
            await asyncio.sleep(60)
        await save(*given)

    return saved


def lose_decision(world: World) -> None:
    """a's word USE never reaches b, nor does anything that it says later."""
    link = world.edges["a"].links["b"]
    said = link.say

    def silent(key: Any, word: v1.Word, reason: str = "") -> None:
        if word == v1.Word.USE:
            link.say = lambda *_: None  # type: ignore[method-assign]
        else:
            said(key, word, reason)

    link.say = silent  # type: ignore[method-assign]


async def one_has_it_on_disk(world: Quiet) -> None:
    held = hold_save(world, "b")
    await world.until(lambda: held.is_set() and world.edges["a"].done == 2)


async def one_left_it_out(world: Quiet) -> None:
    lose_decision(world)
    await world.until(lambda: all(edge.done >= 2 for edge in world.edges.values()))
    assert world.events("undecided", "b")


async def both_have_it(world: Quiet) -> None:
    await world.until(lambda: all(edge.done >= 2 for edge in world.edges.values()))


@pytest.mark.parametrize("alone", ["", "b"], ids=["together", "b-first"])
@pytest.mark.parametrize("alpha", [1, 2])
@pytest.mark.parametrize(
    ("crash", "event"),
    [(one_has_it_on_disk, "taken-back"), (one_left_it_out, "resolved"), (both_have_it, "")],
    ids=["taken-back", "resolved", "whenever"],
)
def test_both_ends_die_and_the_mean_is_kept(
    tmp_path: Path, crash: Callable[[Quiet], Any], event: str, alpha: int, alone: str
) -> None:
    # The larger lives in files, which are kept rather than written again.
    size = toy.SIZE if alpha == 1 else 2 * BLOCK + 1
    deployment = apart(tmp_path, size, alpha=alpha)
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


def test_all_reduce_remembers_a_lost_decision_over_a_restart(tmp_path: Path) -> None:
    deployment = apart(tmp_path, averager="all-reduce")
    wanted = mean(deployment)

    async def run() -> None:
        async with Quiet(deployment) as world:
            for name in "ab":
                await world.start_edge(name)
            # What only one end has on its disk is not taken back after an all-reduce: a death
            # around the next one is another matter.
            stop_after(world, 2)
            world.start_clients()
            await one_left_it_out(world)
            await world.kill_all()
            assert np.abs(mean(deployment) - wanted).max() > 1e-2
            for name in "ab":
                await world.start_edge(name)
            world.start_clients()
            await world.finish()
            assert world.events("repaired")

    asyncio.run(run())
    np.testing.assert_allclose(mean(deployment), wanted, atol=1e-5)


# The memory by itself.


def make(out: StringIO | None = None) -> Memory:
    return Memory("b", Log("a", out))


def change(value: float = 1.0) -> Change:
    return Change((as_vector(np.full(3, value)),), (1.0,))


def test_a_gift_is_kept_until_the_same_life_confirms_it() -> None:
    memory = make()
    memory.give((5, 0), change(), incarnation=1)
    memory.give((5, 1), change(2.0), incarnation=1)
    memory.confirm(4, 1)
    memory.confirm(5, 2)
    assert memory.meet(4, 1) == []
    assert memory.gifts[5].keys == [(5, 0), (5, 1)]
    memory.confirm(5, 1)
    assert not memory.gifts
    assert not memory.repairs


@pytest.mark.parametrize("used", [True, False])
def test_another_life_is_asked_or_has_plainly_lost_it(used: bool) -> None:
    memory = make()
    memory.used((5, 0))
    memory.give((5, 0), change(), incarnation=1)
    assert memory.meet(6, 2) == [(5, 0)]
    memory.settle((4, 0), False)
    assert memory.gifts
    memory.settle((5, 0), used)
    assert not memory.gifts
    assert len(memory.repairs) == (not used)
    assert memory.holds((5, 0)) == used
    memory.give((7, 0), change(), incarnation=2)
    assert memory.meet(6, 3) == []
    assert len(memory.repairs) == 1 + (not used)


def test_what_is_too_old_is_dropped_and_said() -> None:
    out = StringIO()
    memory = make(out)
    memory.give((1, 0), change(), incarnation=1)
    memory.doubts[(1, 1)] = Doubt(change(), ["c"])
    assert memory.forget(1 + PERIODS) == []
    assert [key for key, _ in memory.forget(2 + PERIODS)] == [(1, 1)]
    assert not memory.gifts
    assert not memory.doubts
    events = [json.loads(line)["event"] for line in out.getvalue().splitlines()]
    assert events == ["unconfirmed", "unresolved"]


def test_a_restart_changes_nothing() -> None:
    memory, again = make(), make()
    memory.used((4, 1))
    memory.give((5, 0), change(1), incarnation=2**63)
    memory.doubts[(5, 1)] = Doubt(change(2), ["c", "d"])
    memory.repairs.append(change(3))
    changes: list[Change] = []
    notes = json.loads(json.dumps(memory.dump(changes)))
    lossy = make()
    lossy.load(notes, [None] * len(changes))
    assert (lossy.gifts, lossy.doubts, lossy.repairs) == ({}, {}, [])
    again.load(notes, changes)
    assert again.ledger == [(4, 1)]
    assert again.gifts[5] == memory.gifts[5]
    assert again.doubts == memory.doubts
    assert again.repairs == memory.repairs
    assert again.holds((5, 1))
