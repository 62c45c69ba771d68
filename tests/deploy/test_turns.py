"""Edges that wait for no other cluster do what the simulator does, in an order that is prescribed.

The network, the disks and the clock are those of the twin: a step of client i takes `STEP[i]`
virtual seconds and a message next to nothing, so turns come in the order of the edges' deadlines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_simulator import make_data, make_model
from twin_world import TwinWorld, make_deployment, make_edges_cheap
from virtual import VirtualLoop

import sdfeel
from sdfeel.algorithm.methods.averaging import Rule
from sdfeel.clock import LatencyProfile
from sdfeel.deploy.client.torch_trainer import TorchTrainer
from sdfeel.deploy.cluster import server_step
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.edge import edge as edge_module
from sdfeel.deploy.model.files import Layout, ModelFile
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.topology import Topology
from sdfeel.engines.parameters import ParameterLayout

LINKS = {
    "ring": [("e00", "e01"), ("e01", "e02"), ("e00", "e02")],
    "path": [("e00", "e01"), ("e01", "e02")],
}
SIZES = (2, 1, 3)
DEADLINES = (1.0, 0.61, 0.77)
# Steps that fit, by client: 2, 3 | 1 | 2, 4, 3. The edge that is ready first has the slowest rate,
# so that everybody has heard of it when the compensation is worked out.
STEP = (0.4, 0.28, 0.5, 0.3, 0.16, 0.22)
STEPS = (2, 3, 1, 2, 4, 3)


class TimedLoop(VirtualLoop):
    """Work beside the loop takes as long as it says."""

    cost = 0.0

    def run_in_executor(self, _executor: Any, work: Any, *args: Any) -> asyncio.Future[Any]:
        self.cost, future = 0.0, self.create_future()
        done = self._do(work, args)
        self.call_later(self.cost, self._finish, future, lambda: done)
        return future


class TimedTrainer:
    def __init__(self, own: TorchTrainer, loop: TimedLoop, step: float) -> None:
        self._own, self._loop, self._step = own, loop, step
        self.samples, self.size = own.samples, own.size
        self.made: list[tuple[int, int]] = []

    def train(self, model: np.ndarray, first: int, steps: int) -> np.ndarray:
        self._loop.cost = steps * self._step
        self.made.append((first, steps))
        return self._own.train(model, first, steps)


class FreshWorld(TwinWorld):
    """Nobody has a checkpoint; clients learn, and know how fast they are."""

    def __init__(self, deployment: Deployment, loop: TimedLoop) -> None:
        super().__init__(deployment, Topology(deployment), 0, loop)
        self.net.base = 1e-6
        for disk in self.disks.values():
            disk.found = None
        self.trainers: dict[str, TimedTrainer] = {}

    def trainer(self, name: str) -> TimedTrainer:
        number = self.topology.at(0).clients.index(name)
        data = make_data(number, self.deployment.client(name).samples)
        seed = self.deployment.seed
        own = TorchTrainer(make_model(), data, number, seed=seed, lr=0.1, batch_size=7)
        self.trainers[name] = TimedTrainer(own, self.loop, STEP[number])
        return self.trainers[name]

    def _start_client(self, name: str) -> None:
        super()._start_client(name)
        self.clients[name].budget.took(1, STEP[self.topology.at(0).clients.index(name)])


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    make_edges_cheap(monkeypatch)
    first = as_vector(ParameterLayout.of(make_model()).vector(make_model()).detach().numpy())
    file = ModelFile(Layout.flat(first.size), first)
    monkeypatch.setattr(edge_module, "read_model", lambda _path, **_: file)
    return


def deployed(deployment: Deployment) -> tuple[FreshWorld, np.ndarray]:
    loop = TimedLoop()

    async def main() -> FreshWorld:
        world = FreshWorld(deployment, loop)
        await world.start_all()
        await world.finish(60.0)
        return world

    world = loop.run(main())
    return world, np.stack([world.disks[name].found.model.array() for name in world.lives])


def simulated(deployment: Deployment, seconds: float) -> np.ndarray:
    topology, fast = Topology(deployment), 1e15
    profile = LatencyProfile("test", 1.0, tuple(1 / s for s in STEP), fast, fast, fast, fast)
    found = sdfeel.train(
        make_model(),
        [make_data(n, client.samples) for n, client in enumerate(deployment.clients)],
        network=topology.at(0).network,
        schedule=sdfeel.Schedule(topology.tau1, topology.tau2, 1),
        steps=10**6,
        until=seconds,
        lr=0.1,
        batch_size=7,
        seed=deployment.seed,
        engine="reference",
        averaging_rule=Rule(deployment.averaging.rule, deployment.averaging.limit),
        server_optimizer=deployment.server_optimizer,
        codecs=dict(deployment.codecs),
        averager=topology.averager,  # no two are ready at the same moment
        pace=deployment.pace,
        profile=profile,
        evaluate_every=10**6,
    )
    return found.servers.numpy()


def deployment_of(
    graph: str, tau2: int = 1, pace: dict[str, Any] | None = None, **tables: Any
) -> Deployment:
    return make_deployment(
        SIZES,
        LINKS[graph],
        periods=8,
        averager="paper",
        guests=False,
        seed=5,
        pace={"name": "asynchronous", "deadline": list(DEADLINES), **(pace or {})},
        **{"schedule": {"iterations": 8, "tau1": 2, "tau2": tau2}, **tables},
    )


@pytest.mark.parametrize(
    ("graph", "tau2", "pace", "rule", "optimizer"),
    [
        ("ring", 1, {}, "mean", "mean"),
        ("path", 1, {"psi": "rounds", "compensation": 0.5, "anneal": 3.0}, "mean", "mean"),
        ("path", 2, {"psi": "constant", "compensation": 0.0}, "median", "mean"),
        ("ring", 1, {"mixing": "stale-weights"}, "clip", "mean"),
        ("ring", 1, {}, "history-clip", "mean"),
        (
            "path",
            1,
            {"mixing": "stale-weights", "psi": "rounds", "compensation": 0.0},
            "mean",
            "mean",
        ),
        ("ring", 1, {}, "mean", "fedavgm"),
        ("path", 1, {"mixing": "stale-weights"}, "median", "fedadam"),
    ],
    ids=[
        "ring",
        "path",
        "tau2-median",
        "stale-ring-clip",
        "history-clip",
        "stale-path",
        "fedavgm",
        "fedadam",
    ],
)
def test_deployed_equals_simulated(
    graph: str,
    tau2: int,
    pace: dict[str, Any],
    rule: str,
    optimizer: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To float32 rounding: the two add up the same numbers in another order."""
    tables = {"averaging": {"rule": rule, "limit": 0.3}, "server_optimizer": optimizer}
    deployment = deployment_of(graph, tau2, pace, **tables)
    monkeypatch.setattr(server_step, "read_notes", lambda _path: {})
    topology = Topology(deployment)
    assert [topology.plan(edge) for edge in topology.at(0).edges] == [4, 7, 5]
    world, found = deployed(deployment)
    for number, trainer in enumerate(world.trainers.values()):
        turns = topology.plan(deployment.clients[number].edge)
        steps = STEPS[number]
        assert trainer.made == [(1 + n * steps, steps) for n in range(turns)]
    # Just before the last turn of all, the seventh of the edge with the shortest time.
    expected = simulated(deployment, 7 * DEADLINES[1] - 0.01)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)
    apart = simulated(deployment, 7 * DEADLINES[1] - 0.3)
    assert np.abs(found - apart).max() > 1e-3, "one turn more or less would be seen"


@pytest.mark.parametrize(
    ("graph", "pace", "codecs"),
    [
        ("ring", {}, {"up": "int8"}),
        ("path", {}, {"up": "top-k"}),
        ("ring", {"mixing": "stale-weights"}, {"up": "int4", "down": "float16"}),
        ("path", {"compensation": 0.5}, {"down": "int8"}),
        ("ring", {}, {"down": "top-k"}),
        ("path", {}, {"between": "int8"}),
        ("ring", {}, {"between": "int4"}),
        ("ring", {}, {"up": "int8", "down": "int8", "between": "bfloat16"}),
    ],
    ids=str,
)
def test_codecs_are_the_simulators(
    graph: str, pace: dict[str, Any], codecs: dict[str, str]
) -> None:
    """All three ways: what is rounded, drawn, owed and held follows the simulator."""
    deployment = deployment_of(graph, pace=pace, codecs=codecs)
    _, found = deployed(deployment)
    expected = simulated(deployment, 7 * DEADLINES[1] - 0.01)
    # A value that is rounded the other way is one step of a block off, and there are few.
    np.testing.assert_allclose(found, expected, atol=6e-3)
    assert np.mean(np.abs(found - expected) > 2e-6) < 0.15
    plain = simulated(deployment_of(graph, pace=pace), 7 * DEADLINES[1] - 0.01)
    assert np.mean(np.abs(expected - plain) > 2e-6) > 0.3, "the codecs round something off"


@pytest.mark.parametrize("pace", [{}, {"mixing": "stale-weights"}], ids=str)
def test_swaps_are_clipped_as_in_a_run(
    pace: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the smaller bound of both ends, of which each has heard with the other's model."""
    monkeypatch.setattr(server_step, "read_notes", lambda _path: {})
    schedule = {"iterations": 8, "tau1": 2, "averager": {"name": "clipped", "factor": 0.5}}
    deployment = deployment_of("ring", pace=pace, schedule=schedule)
    _, found = deployed(deployment)
    expected = simulated(deployment, 7 * DEADLINES[1] - 0.01)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)
    plain = simulated(deployment_of("ring", pace=pace), 7 * DEADLINES[1] - 0.01)
    assert np.abs(found - plain).max() > 1e-3
