"""Exchanges of the engines that hold all models in matrices, where servers are many."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.data import ClientData
from sdfeel.network import AVERAGERS, Network
from sdfeel.simulation import matrix
from sdfeel.simulation.engines.engine import EngineState
from sdfeel.simulation.engines.vectorised import VectorisedEngine
from sdfeel.simulation.setup import make_problem


@pytest.fixture
def engine():
    """40 servers with 1 to 3 clients; a model that ends in the middle of a block of columns."""
    network = Network.build("ring", 40, [1 + d % 3 for d in range(40)])
    C = network.clients
    data = ClientData(torch.zeros(C, 70), torch.zeros(C, 30), np.arange(C + 1))
    problem = make_problem(
        nn.Linear(70, 30), data, network, loss=F.mse_loss, lr=0.1, batch_size=1, seed=0,
        device=torch.device("cpu"),
    )  # fmt: skip
    assert problem.layout.size % matrix.COLUMNS != 0
    assert problem.layout.size > matrix.COLUMNS
    return VectorisedEngine(problem, problem.layout.vector(problem.model))


@pytest.mark.parametrize("name", AVERAGERS)
@pytest.mark.parametrize("alpha", [1, 3, 12])
def test_exchanges_apply_the_averagers_operator(engine, name, alpha):
    averager = engine.problem.network.averager(name, alpha)
    before = torch.randn(engine.Y.shape, generator=torch.Generator().manual_seed(0))
    engine.restore(EngineState(before))
    engine.inter(averager)
    expected = before.double().T.numpy() @ averager.operator
    np.testing.assert_allclose(engine.Y.T.numpy(), expected, rtol=1e-6, atol=1e-6)
    assert engine.Y.dtype == before.dtype


def test_one_exchange_on_a_ring_is_sparse_and_many_are_not(engine):
    network = engine.problem.network
    share = [
        np.count_nonzero(network.averager("paper", alpha).operator) / network.servers**2
        for alpha in (1, 12)
    ]
    assert share[0] < matrix.SPARSE < share[1]
