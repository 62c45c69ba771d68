"""One edge of a ring of five lies in every exchange: what becomes of the others' accuracy.

The attacks are the simulator's, told over the protocol; network, disks and clock are the twin's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from liar import Attacker, Liar
from torch import nn
from torch.utils.data import TensorDataset
from twin_world import TwinWorld, make_deployment, make_edges_cheap
from virtual import VirtualLoop

from sdfeel.algorithm.methods.attacks import Attacks, Lie
from sdfeel.deploy.client.torch_trainer import TorchTrainer
from sdfeel.deploy.cluster import server_step
from sdfeel.deploy.edge import edge as edge_module
from sdfeel.deploy.model.files import Layout, ModelFile
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.topology import Topology
from sdfeel.engines.parameters import ParameterLayout

RING = [(f"e{n:02d}", f"e{(n + 1) % 5:02d}") for n in range(5)]
CLASSES, INPUTS = 4, 12
LIES = ("sign-flip", "inner-product", "spectral")


def samples(seed: int, count: int, classes: tuple[int, ...] = (0, 1, 2, 3)) -> TensorDataset:
    """Of four clouds of points that overlap a little."""
    drawn = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES, INPUTS, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor(classes)[torch.randint(0, len(classes), (count,), generator=drawn)]
    return TensorDataset(centres[labels] + torch.randn(count, INPUTS, generator=drawn), labels)


def make_model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Linear(INPUTS, CLASSES)


class LearningWorld(TwinWorld):
    """Nobody has a checkpoint, and clients learn."""

    def trainer(self, name: str) -> TorchTrainer:
        number = self.topology.at(0).clients.index(name)
        classes = tuple((number // 2 + n) % CLASSES for n in range(3))  # one less at each edge
        data = samples(100 + number, self.deployment.client(name).samples, classes)
        return TorchTrainer(make_model(), data, number, seed=0, lr=0.1, batch_size=5)


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    make_edges_cheap(monkeypatch)
    first = as_vector(ParameterLayout.of(make_model()).vector(make_model()).detach().numpy())
    file = ModelFile(Layout.flat(first.size), first)
    monkeypatch.setattr(edge_module, "read_model", lambda _path, **_: file)
    monkeypatch.setattr(server_step, "read_notes", lambda _path: {})
    return


def accuracy(averager: Any, lie: Lie | None) -> float:
    """The mean accuracy of the honest edges after 40 periods, on samples that nobody holds."""
    tables: dict[str, Any] = {"schedule": {"iterations": 120, "tau1": 3, "averager": averager}}
    deployment = make_deployment([2] * 5, RING, 1, "paper", guests=False, **tables)
    topology, loop = Topology(deployment), VirtualLoop(3)
    honest = topology.at(0).edges[:-1]

    async def main() -> LearningWorld:
        world = LearningWorld(deployment, topology, 3, loop)
        for disk in world.disks.values():
            disk.found = None
        there = [*honest, *(n for name in honest for n in sorted(topology.at(0).home(name)))]
        if lie is not None:
            attacker = Attacker(world, Attacks(servers={len(honest): lie}))
            await Liar(world, attacker, done=0).listen()
        for name in there:
            await world.start(name)
        while not all(world.edges[name].phase == "finished" for name in honest):
            assert loop.time() < 300, world.where()
            await asyncio.sleep(0.1)
        if lie is not None:
            assert attacker.told >= 2 * 30, "it had its part in the exchanges"
        return world

    world = loop.run(main())
    inputs, labels = samples(9, 400).tensors
    right = []
    for name in honest:
        weights = torch.from_numpy(world.edges[name].model.array().copy())
        model = make_model()
        ParameterLayout.of(model).load(model, weights)
        right.append(float((model(inputs).argmax(1) == labels).float().mean()))
    return float(np.mean(right))


def test_without_a_liar_clipping_costs_little() -> None:
    assert accuracy("paper", None) > 0.94
    assert accuracy("clipped", None) > 0.94


@pytest.mark.parametrize("name", LIES)
def test_honest_edges_keep_their_accuracy_with_clipped_exchanges(name: str) -> None:
    """With the paper's exchange one liar takes everybody to about a third."""
    assert accuracy("clipped", Lie(name)) > 0.85
    assert accuracy("paper", Lie(name)) < 0.5
