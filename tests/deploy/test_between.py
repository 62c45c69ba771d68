"""Codecs between edges: the simulator's models, the same bits after deaths, the mean kept."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from as_simulated import as_simulated
from harness import World, content, run_to_the_end
from harness import deploy as deploy_toy
from own_methods import Sign
from test_server_step import deploy, trainers
from test_simulator import make_data, make_model

from sdfeel.algorithm.methods.codecs import CODECS
from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.edge.edge import EdgeServer
from sdfeel.deploy.model.vectors import BLOCK
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.wire.packing import packing_of
from sdfeel.errors import InputError


def simulated(deployment: Deployment) -> np.ndarray:
    codecs = dict(deployment.codecs)
    return as_simulated(deployment, make_model, make_data, codecs=codecs)


@pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")
@pytest.mark.parametrize(
    ("codec", "averager"),
    [
        ("float16", "paper"),
        ("bfloat16", "metropolis"),
        ("int8", "paper"),
        ("int8", "metropolis"),
        ("int8", "chebyshev"),
        ("int4", "metropolis"),
    ],
)
def test_deployed_equals_simulated(tmp_path: Path, codec: str, averager: str) -> None:
    """Over several rounds of two exchanges, in which all neighbours hold the same of an edge."""
    tables = {"averager": averager, "codecs": {"between": codec}}
    deployment = deploy(tmp_path, make_model(), (1, 3, 2, 1), **tables)
    deployed = run_to_the_end(deployment, trainers(deployment))
    expected = simulated(deployment)
    # A value that is rounded the other way is one step of a block off, and there are few.
    np.testing.assert_allclose(deployed, expected, atol=4e-3)
    assert np.mean(np.abs(deployed - expected) > 1e-5) < 0.15
    plain = simulated(deployment.model_copy(update={"codecs": type(deployment.codecs)()}))
    assert np.abs(expected - plain).max() > 1e-5, "the codec rounds something off"


def gates(deployment: Deployment, size: int, period: int) -> dict[str, Gated]:
    """Trainers that wait before a period, each in a thread of its own: disks need some, too."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
    before = (period - 1) * deployment.schedule.tau1 + 1
    return {
        client.name: Gated(n, client.samples, size, before)
        for n, client in enumerate(deployment.clients)
    }


class Gated(toy.ToyTrainer):
    """Waits before a step that is not to begin yet."""

    def __init__(self, number: int, samples: int, size: int, before: int) -> None:
        super().__init__(number, samples, size)
        self.before, self.gate = before, threading.Event()

    def train(self, model: np.ndarray, first: int, steps: int) -> np.ndarray:
        if first >= self.before:
            self.gate.wait(60)
        return super().train(model, first, steps)


@pytest.mark.parametrize("size", [500, 2 * BLOCK + 7])
def test_all_edges_killed_end_at_the_same_bits(tmp_path: Path, size: int) -> None:
    """What both ends hold is in the checkpoints, in them or beside them: changes go on at once."""
    options: dict[str, Any] = {"periods": 5, "alpha": 2, "averager": "metropolis"}
    (tmp_path / "calm").mkdir()
    calm = deploy_toy(tmp_path / "calm", size, codecs={"between": "int8"}, **options)
    expected = run_to_the_end(calm, size=size)
    deployment = deploy_toy(tmp_path, size, codecs={"between": "int8"}, **options)

    async def run() -> list[np.ndarray]:
        async with World(deployment) as world:
            world.size = size
            gated = gates(deployment, size, period=3)
            await world.start_all(gated)
            await world.until(lambda: all(edge.done == 2 for edge in world.edges.values()))
            await world.until(
                lambda: not any(e.carrier.saver.is_writing for e in world.edges.values())
            )
            for name in [*world.edges, *world.clients]:
                await world.kill(name)
            for trainer in gated.values():
                trainer.gate.set()
            await world.start_all()
            await world.finish()
            for edge in world.edges.values():
                sent = sum(link.sent for link in edge.links.values())
                assert sent < 2 * 2 * 3 * (size + size // 64 + 400), "changes, and no whole model"
            return [edge.model.array() for edge in world.edges.values()]

    for found, wanted in zip(asyncio.run(run()), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_an_edge_that_lost_its_disk_begins_anew_from_whole_models(tmp_path: Path) -> None:
    """The ends hold different models: they say so, and no exchange is lost or guessed."""
    deployment = deploy_toy(tmp_path, periods=12, codecs={"between": "int8"})

    async def run() -> None:
        async with World(deployment) as world:
            gated = gates(deployment, toy.SIZE, period=5)
            await world.start_all(gated)
            await world.until(lambda: all(edge.done == 4 for edge in world.edges.values()))
            await world.kill("b")
            for file in (tmp_path / "state" / "b").glob("period-*"):
                file.unlink()
            await world.start_edge("b")
            await world.until(lambda: all(link.up for link in world.edges["b"].links.values()))
            for trainer in gated.values():
                trainer.gate.set()
            await world.finish()
            refused = [
                e.metrics.value("sdfeel_refused_total", kind="base") for e in world.edges.values()
            ]
            assert not any(refused)
            for edge in world.edges.values():
                assert all(link.used >= 7 for link in edge.links.values())
            assert world.audit(died=("b",)) > 0

    asyncio.run(run())


@pytest.mark.parametrize("codec", ["bfloat16", "int8", "int4"])
def test_bytes_between_edges_are_those_of_the_codec(tmp_path: Path, codec: str) -> None:
    size = BLOCK + 300
    options: dict[str, Any] = {"periods": 4, "averager": "metropolis", "sizes": (1, 1)}
    deployment = deploy_toy(tmp_path, size, codecs={"between": codec}, **options)

    async def run() -> list[int]:
        async with World(deployment) as world:
            world.size = size
            await world.start_all()
            await world.finish()
            assert world.audit() == 4
            return [
                edge.links[peer].sent for edge, peer in zip(world.edges.values(), "ba", strict=True)
            ]

    length = 4 * -(-CODECS[codec]().bits(size) // 8)
    assert asyncio.run(run()) == [length, length]


@pytest.mark.parametrize(
    ("tables", "named"),
    [
        ({"codecs": {"between": "int8"}, "averager": "all-reduce"}, "all-reduce sends sums"),
        ({"codecs": {"between": "int4"}, "averager": "chebyshev"}, "without negative weights"),
        ({"codecs": {"between": "top-k"}, "averager": "metropolis"}, "servers would mix what"),
        ({"codecs": {"between": "int9"}}, "codecs.between = 'int9': did you mean 'int8'"),
        ({"codecs": {"up": {"name": "top-k", "k": 10**10}}}, "codecs.k = 10000000000: at most"),
        ({"codecs": {"up": {"name": "top-k", "share": 0.1}}}, "codecs.up.share = 0.1: unknown key"),
    ],
)
def test_what_cannot_be_is_refused_as_in_a_run(
    tmp_path: Path, tables: dict[str, Any], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        Topology(parse_deployment(content((1, 1, 1), alpha=2, **tables), tmp_path))


def test_a_codec_of_the_users_by_import_path(tmp_path: Path) -> None:
    codecs = {
        "up": {"name": "own_methods:Sign", "scale": 0.5},
        "down": "own_methods:Sign",
        "between": "own_methods:Sign",
    }
    deployment = deploy(tmp_path, make_model(), (1, 2), averager="metropolis", codecs=codecs)
    assert (deployment.codecs.up, deployment.codecs.down) == (Sign(scale=0.5), Sign())
    deployed = run_to_the_end(deployment, trainers(deployment))
    np.testing.assert_allclose(deployed, simulated(deployment), rtol=1e-4, atol=1e-5)


def test_more_values_than_a_model_has_are_refused_before_it_starts(tmp_path: Path) -> None:
    options: dict[str, Any] = {"sizes": (1,), "codecs": {"up": {"name": "top-k", "k": 10}}}
    deployment = deploy_toy(tmp_path, 9, **options)
    with pytest.raises(InputError, match=r"codecs\.k = 10: at most 9"):
        EdgeServer(deployment, "a", tmp_path / "state")


def test_what_a_codec_of_the_users_cannot_read_is_refused(tmp_path: Path) -> None:
    """It harms no edge: the client is told, and nothing of it counts."""
    options: dict[str, Any] = {"sizes": (2,), "periods": 3, "codecs": {"up": "own_methods:Broken"}}
    packing = packing_of(deploy_toy(tmp_path, **options).codecs.up)
    assert packing is not None
    with pytest.raises(Refused, match="broken cannot decode it: ZeroDivisionError"):
        packing.reader(3).read(bytes(7), 3)
    with pytest.raises(Refused, match="a chunk of 6 bytes for 3 values"):
        packing.reader(3).read(bytes(6), 3)
