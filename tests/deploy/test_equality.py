"""With nobody failing, the deployed result is the one of Algorithm 1."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import toy
from harness import World, check_mean_kept, deploy

from sdfeel.deploy.topology import Topology

AVERAGERS = ["paper", "metropolis", "chebyshev", "finite-time", "all-reduce"]


def algorithm_1(topology: Topology, periods: int) -> np.ndarray:
    """The servers' models (M x D) by the matrices of the paper."""
    network = topology.at(0).network
    servers = np.zeros((toy.SIZE, network.servers), dtype=np.float32)
    for period in range(1, periods + 1):
        clients = []
        for i, d in enumerate(network.clusters.server_of):
            model = servers[:, d]
            for k in range((period - 1) * topology.tau1 + 1, period * topology.tau1 + 1):
                model = toy.step(model, i, k)
            clients.append(model)
        servers = (np.stack(clients, axis=1).astype(float) @ network.shares.V).astype(np.float32)
        if topology.is_inter(period):
            averager = topology.at(period).averager
            for number in range(averager.exchanges):
                servers = (servers.astype(float) @ averager.exchange(number)).astype("f4")
    return servers


@pytest.mark.parametrize("averager", AVERAGERS)
@pytest.mark.parametrize(
    ("sizes", "tau2", "alpha"), [((1, 3, 2), 1, 3), ((2, 1, 1, 2), 2, 2)], ids=["ring3", "ring4"]
)
def test_deployed_equals_algorithm_1(
    tmp_path: Path, averager: str, sizes: tuple[int, ...], tau2: int, alpha: int
) -> None:
    deployment = deploy(tmp_path, sizes=sizes, averager=averager, tau2=tau2, alpha=alpha, periods=4)
    topology = Topology(deployment)

    async def run() -> np.ndarray:
        async with World(deployment) as world:
            await world.start_all()
            await world.finish()
            lines = [line for edge in world.edges.values() for line in edge.log.recent]
            assert check_mean_kept(topology, lines) > 0
            for client in world.clients.values():
                assert client.accepted == [1, 2, 3, 4]
            return np.stack([edge.model.array() for edge in world.edges.values()], axis=1)

    found = asyncio.run(run())
    np.testing.assert_allclose(found, algorithm_1(topology, 4), rtol=2e-6, atol=2e-6)
