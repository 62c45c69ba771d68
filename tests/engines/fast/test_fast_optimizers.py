"""Optimizers that are not affine in the gradient, in C: clipping, Adam, AdamW."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_fast_losses import SAMPLES, focal, network
from torch import Tensor, nn
from torch.nn import functional

import sdfeel
from sdfeel.algorithm.methods.chain import Chain
from sdfeel.algorithm.methods.optimizers import SGD, Adam, AdamW, Momentum, Optimizer
from sdfeel.data import ClientData
from sdfeel.engines.choose import Unsupported
from sdfeel.engines.engine import Engine, Work
from sdfeel.engines.fast.engine import FastEngine
from sdfeel.engines.plain import new_row
from sdfeel.engines.problem import Problem, make_problem
from sdfeel.engines.reference import ReferenceEngine

OPTIMIZERS: dict[str, Optimizer] = {
    "clip": SGD(clip=0.3),
    "clip and momentum": Momentum(0.8, nesterov=True, clip=0.3, weight_decay=0.1, prox=0.2),
    "adam": Adam(),
    "adam that clips": Adam(0.7, 0.9, 1e-6, clip=0.3, weight_decay=0.1, prox=0.3),
    "adamw": AdamW(weight_decay=0.2),
}


def problem(optimizer: Optimizer, loss: Any = functional.cross_entropy, batch: int = 6) -> Problem:
    rng = np.random.default_rng(2)
    inputs = torch.from_numpy(rng.normal(size=(sum(SAMPLES), 5)))
    labels = torch.from_numpy(rng.integers(0, 4, sum(SAMPLES)))
    data = ClientData(inputs, labels, np.concatenate([[0], np.cumsum(SAMPLES)]))
    chain = Chain(optimizer)
    model = network().double()
    return make_problem(model, data, loss=loss, batch_size=batch, seed=4, chain=chain)


def trained(engine: Engine, keeps: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """Two calls one after the other; what clients remember goes from one to the next if kept."""
    clients = np.arange(len(SAMPLES))
    layout, model, chain = engine.problem.layout, engine.problem.model, engine.problem.chain
    models = layout.vector(model).repeat(len(clients), 1)
    rows = {name: new_row(row, models) for name, row in chain.rows.items()} if keeps else {}
    for first in (1, 4):
        last = first + clients % 3
        work = Work(clients, np.full(len(clients), first), last, (models.clone(), clients), rows)
        engine.train(work, models)
    return models, rows


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    ("loss", "batch"), [(functional.cross_entropy, 6), (focal, 6), (focal, 150)]
)
def test_equal_to_the_reference(name: str, keeps: bool, loss: Any, batch: int) -> None:
    """Losses in C and of Python, batches within a block and above it, remembered or not."""
    case = problem(OPTIMIZERS[name], loss, batch)
    models, rows = trained(FastEngine(case), keeps)
    expected, wanted = trained(ReferenceEngine(case), keeps)
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-9)
    for row, values in rows.items():
        np.testing.assert_allclose(values, wanted[row], rtol=0, atol=1e-9, err_msg=row)


def test_a_norm_below_the_bound_is_left_as_it_is() -> None:
    models, _ = trained(FastEngine(problem(SGD(clip=1e6))), keeps=False)
    expected, _ = trained(FastEngine(problem(SGD())), keeps=False)
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-12)


def test_parameters_that_no_layer_uses_decay_all_the_same() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.idle, self.layer = nn.Parameter(torch.ones(19)), nn.Linear(5, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)

    inputs, labels = torch.randn(20, 5), torch.randint(0, 4, (20,))
    data = ClientData(inputs, labels, np.array([0, 20]))
    chain = Chain(AdamW(weight_decay=0.5))
    case = make_problem(
        Idle(), data, loss=functional.cross_entropy, batch_size=5, seed=1, chain=chain
    )
    start = case.layout.vector(case.model)[None]
    here = np.zeros(1, np.int64)
    ends = []
    for engine in (FastEngine(case), ReferenceEngine(case)):
        models = start.clone()
        engine.train(Work(here, here + 1, here + 4, (start, here)), models)
        ends.append(models)
    torch.testing.assert_close(*ends, rtol=0, atol=1e-5)
    assert ends[0][0, 0] < 1.0


def test_an_optimizer_of_the_users_own_is_left_to_others() -> None:
    """A subclass may do anything with a gradient: it is not taken for what it inherits from."""

    class Mine(Adam):
        def gradient(self, g: Tensor, w: Tensor, rows: Any, step: Any) -> Tensor:
            return g.sign()

    with pytest.raises(Unsupported, match="mine is not affine"):
        FastEngine(problem(Mine()))
    with pytest.raises(Unsupported, match="eps"):
        FastEngine(problem(Adam(eps=0)))


def test_a_run_takes_it() -> None:
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(80, 5)).astype(np.float32), rng.integers(0, 4, 80)
    network_of = sdfeel.Network.ring(3, 2)
    ends = []
    for engine in ("fast", "reference"):
        result = sdfeel.train(
            network(), (inputs, labels), network=network_of, steps=8, batch_size=4, engine=engine,
            partition="iid",
            optimizer=Adam(clip=1.0, memory="keep"), lr=0.01,
        )  # fmt: skip
        ends.append(torch.nn.utils.parameters_to_vector(result.model.parameters()).detach())
    torch.testing.assert_close(*ends, rtol=0, atol=1e-5)
