"""The deployed result is the simulator's with the same seed, with PyTorch clients and real mTLS."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from harness import content, run_to_the_end
from torch import nn
from torch.utils.data import TensorDataset

from sdfeel.algorithm.schedule import Schedule
from sdfeel.api import train
from sdfeel.deploy.client.torch_trainer import TorchTrainer, write_initial
from sdfeel.deploy.config import parse_deployment
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.provision import provision
from sdfeel.engines.parameters import ParameterLayout

AVERAGERS = ["paper", "metropolis", "chebyshev", "finite-time", "all-reduce"]


def make_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def make_data(number: int, samples: int) -> TensorDataset:
    drawn = torch.Generator().manual_seed(100 + number)
    inputs = torch.randn(samples, 6, generator=drawn)
    return TensorDataset(inputs, torch.randint(0, 3, (samples,), generator=drawn))


@pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")
@pytest.mark.parametrize("averager", AVERAGERS)
def test_deployed_equals_simulated(tmp_path: Path, averager: str) -> None:
    table = content((1, 3, 2, 1), tau1=3, tau2=2, alpha=2, periods=6, averager=averager)
    deployment = parse_deployment(table | {"seed": 5}, tmp_path)
    provision(deployment)
    write_initial(deployment, make_model())
    topology = Topology(deployment)
    datasets = [make_data(n, client.samples) for n, client in enumerate(deployment.clients)]
    trainers = {
        client.name: TorchTrainer(make_model(), datasets[n], n, seed=5, lr=0.1, batch_size=7)
        for n, client in enumerate(deployment.clients)
    }
    deployed = run_to_the_end(deployment, trainers)
    simulated = train(
        make_model(),
        datasets,
        network=topology.at(0).network,
        schedule=Schedule(3, 2, 2),
        steps=18,
        lr=0.1,
        batch_size=7,
        seed=5,
        averager=averager,
        engine="reference",
        evaluate_every=18,
    )
    layout = ParameterLayout.of(make_model())
    for found, model in zip(deployed, simulated.server_models, strict=True):
        expected = layout.vector(model).detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)
    assert not np.allclose(deployed[0], layout.vector(make_model()).detach().numpy(), atol=1e-3)
