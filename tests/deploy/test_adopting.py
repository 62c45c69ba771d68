"""An edge without a checkpoint goes on from its neighbours' model."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from harness import Process, World, deploy

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.edge.edge import EdgeServer
from sdfeel.deploy.model.store import read_safetensors, write_safetensors
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.protocol import v1
from sdfeel.errors import InputError

QUICK = {"round": 1.5, "exchange": 2.0, "ping": 0.6}
FAR = np.full(toy.SIZE, 10.0)
PATIENCE = 600.0  # seconds; only something that hangs takes so long


def loss(deployment: Deployment, model: np.ndarray) -> float:
    """What the toy's clients minimise together, above its least value."""
    samples = np.array([client.samples for client in deployment.clients], dtype=float)
    curvatures = np.array([1 + 0.3 * (n % 4) for n in range(len(samples))])
    weights = samples * curvatures / (samples * curvatures).sum()
    goals = np.stack([toy.goal(n) for n in range(len(samples))])
    return float(((model - weights @ goals) ** 2).sum())


def on_disk(folder: Path) -> np.ndarray:
    """The newest model of an edge that may be writing the next."""
    while True:
        with contextlib.suppress(InputError, IndexError):  # gone meanwhile, or not there yet
            newest = sorted(folder.glob("period-*.safetensors"))[-1]
            return read_safetensors(newest)[0].array()


def test_a_lost_disk_spoils_nothing(tmp_path: Path) -> None:
    """Everybody is a process; b is killed with kill -9 and loses all it had."""
    deployment = deploy(
        tmp_path,
        periods=100_000,
        fallback=True,
        # On a busy machine nobody is taken for dead, and it waits for a second voice.
        deadlines={"round": 60.0, "exchange": 120.0, "ping": 60.0},
        local={"options": {"delay": 0.02}},
    )
    write_safetensors(tmp_path / "initial.safetensors", as_vector(FAR), {})

    def done(name: str) -> int:
        folder = tmp_path / "state" / name
        return max((int(p.stem[7:]) for p in folder.glob("period-*.safetensors")), default=0)

    def lost(name: str) -> float:
        return loss(deployment, on_disk(tmp_path / "state" / name))

    async def run() -> None:
        async with World(deployment) as world:
            edges = {edge.name: Process(world, "edge", edge.name) for edge in deployment.edges}
            for client in deployment.clients:
                Process(world, "client", client.name)
            first = loss(deployment, FAR)

            def have_learned() -> bool:
                return all(done(name) and lost(name) < 0.01 * first for name in edges)

            await world.until(have_learned, PATIENCE)
            edges["b"].signal(signal.SIGKILL)
            edges["b"].process.wait()
            shutil.rmtree(tmp_path / "state" / "b")
            before = {name: done(name) for name in "ac"}
            again = Process(world, "edge", "b")
            await world.until(lambda: again.saw("adopted"), PATIENCE)
            (adopted,) = (line for line in again.lines() if line["event"] == "adopted")
            assert adopted["period"] >= min(before.values())
            worst: list[float] = []

            def is_back() -> bool:
                """It has exchanged, too: its first periods may be a jump to where others are."""
                worst.extend(lost(name) for name in edges)
                used = [line["used"] for line in again.lines() if line["event"] == "exchange"]
                return any(used) and done("b") >= adopted["period"] + 5

            await world.until(is_back, PATIENCE)
            assert max(worst) < 0.02 * first

    asyncio.run(run())


async def lose_b(world: World) -> None:
    await world.start_all(
        {
            client.name: toy.ToyTrainer(number, client.samples, delay=0.03)
            for number, client in enumerate(world.deployment.clients)
        }
    )
    await world.until(lambda: all(edge.done >= 4 for edge in world.edges.values()))
    await world.kill("b")
    shutil.rmtree(world.folder / "state" / "b")


def test_nobody_answers(tmp_path: Path) -> None:
    """Then the first model it is, as if it had never been there."""
    deployment = deploy(tmp_path, periods=40, deadlines=QUICK)

    async def run() -> None:
        async with World(deployment) as world:
            await lose_b(world)
            for edge in world.edges.values():
                edge.links["b"].hooks.wanted = lambda _: None
            again = await world.start_edge("b")
            await world.until(lambda: len(world.events("not-adopted", "b")) == 2)
            await world.finish()
            assert again.done == 40
            assert not world.events("adopted")

    asyncio.run(run())


def test_who_is_cut_off_while_it_answers_is_asked_again(tmp_path: Path) -> None:
    """On a busy machine or a bad line: the first model would spoil what the others have."""
    deployment = deploy(tmp_path, periods=200, deadlines={"exchange": 120.0})

    async def run() -> None:
        async with World(deployment) as world:
            await lose_b(world)
            asked: list[str] = []

            def answer(link: Any, lend: Callable[[v1.Wanted], None], wanted: v1.Wanted) -> None:
                asked.append(link.peer)
                if len(asked) > 4:
                    lend(wanted)
                else:
                    link._stream.close("cut")

            for edge in world.edges.values():
                hooks = edge.links["b"].hooks
                hooks.wanted = partial(answer, edge.links["b"], hooks.wanted)
            await world.start_edge("b")
            await world.until(lambda: bool(world.events("adopted", "b")))
            assert len(asked) > 4
            assert not world.events("not-adopted", "b")

    asyncio.run(run())


@pytest.mark.parametrize("spoiled", ["values", "shape", "period"])
def test_a_bad_answer_is_refused_and_the_next_neighbour_asked(tmp_path: Path, spoiled: str) -> None:
    deployment = deploy(tmp_path, periods=200)
    values = {"values": np.full(toy.SIZE, np.nan), "shape": np.zeros(3)}
    bad = as_vector(values.get(spoiled, np.zeros(toy.SIZE)))

    async def run() -> None:
        async with World(deployment) as world:
            await lose_b(world)
            asked: list[str] = []

            def answer(edge: EdgeServer) -> None:
                asked.append(edge.name)
                if len(asked) == 1:
                    edge.links["b"].lend(bad, 10**6 if spoiled == "period" else edge.done)
                else:
                    edge.links["b"].lend(edge.model, edge.done)

            for edge in world.edges.values():
                edge.links["b"].hooks.wanted = lambda _, edge=edge: answer(edge)
            again = await world.start_edge("b")
            await world.until(lambda: bool(world.events("adopted", "b")))
            liar, honest = asked
            assert [line["peer"] for line in world.events("not-adopted", "b")] == [liar]
            assert [line["peer"] for line in world.events("adopted", "b")] == [honest]
            assert again.metrics.value("sdfeel_adoptions_total") == 1
            assert np.isfinite(again.model.array()).all()

    asyncio.run(run())


def test_a_model_that_nobody_asked_for_is_refused(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, periods=20)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all()
            await world.until(lambda: all(edge.done >= 2 for edge in world.edges.values()))
            world.edges["a"].links["b"].lend(as_vector(np.zeros(toy.SIZE)), 5)
            await world.until(
                lambda: world.edges["b"].metrics.value("sdfeel_refused_total", kind="unasked") == 1
            )
            await world.finish()
            assert world.audit() > 0

    asyncio.run(run())


def test_a_neighbour_may_ask_as_often_as_it_likes(tmp_path: Path) -> None:
    """One loan at a time, whatever it costs the one who asks."""
    deployment = deploy(tmp_path, periods=20)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all()
            await world.until(lambda: all(edge.done >= 2 for edge in world.edges.values()))
            link: Any = world.edges["b"].links["a"]
            for _ in range(200):
                await link._take(v1.LinkMessage(wanted=v1.Wanted()))
            assert len(world.events("lent", "b")) == 1
            await world.finish()

    asyncio.run(run())
