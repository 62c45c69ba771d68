"""One module that visits clients: where their models lie must not show."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from worlds import classification

from sdfeel import Momentum
from sdfeel.algorithm.methods.chain import Chain
from sdfeel.data import ClientData
from sdfeel.engines import plain
from sdfeel.engines.engine import Work
from sdfeel.engines.plain import PlainUpdates
from sdfeel.engines.problem import Problem, make_problem

CLIENTS = 4


class Replacing(nn.Module):
    """Puts other tensors in the place of its own instead of changing them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x + 0.01 * self.seen)
        if self.training:
            self.seen = self.seen + x.mean(dim=0)
            self.layer.bias.data = self.layer.bias.data + 0.125
        return found


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


class Outcome(NamedTuple):
    models: Tensor
    velocity: Tensor
    losses: np.ndarray


def problem_of(model: nn.Module) -> Problem:
    torch.manual_seed(0)
    world = classification([8] * CLIENTS, [list(range(CLIENTS))], "path")
    data = ClientData.from_datasets(world.datasets)
    chain = Chain(Momentum(0.9, memory="keep"))
    return make_problem(model, data, batch_size=4, seed=0, chain=chain)


def trained(problem: Problem, visits: list[list[int]], own: bool) -> Outcome:
    """All clients' three steps, in some order; from a row of their own or one for all."""
    updates, size = PlainUpdates(problem), problem.layout.size
    server = problem.layout.vector(problem.model)[None]
    models = torch.full((CLIENTS, size), torch.nan)
    kept = {"momentum.velocity": torch.zeros(CLIENTS, problem.layout.parameters)}
    ones = np.ones(CLIENTS, dtype=np.int64)
    start = (server.repeat(CLIENTS, 1), np.arange(CLIENTS)) if own else (server, 0 * ones)
    work = Work(np.arange(CLIENTS), ones, 3 * ones, start, kept)
    losses = work.no_losses()
    for rows in visits:
        part = np.array(rows, dtype=np.int64)
        losses[part] = updates.carry_out(models, work, part)
    assert torch.equal(start[0], server.repeat(len(start[0]), 1))  # others may begin there, too
    return Outcome(models, kept["momentum.velocity"], losses)


@pytest.mark.parametrize("make", [lambda: nn.Linear(4, 3), normalised, Replacing])
@given(order=st.permutations(range(CLIENTS)), own=st.booleans(), data=st.data())
def test_where_a_model_is_worked_on_shows_nowhere(
    make: type[nn.Module], order: list[int], own: bool, data: st.DataObject
) -> None:
    """Models shorter than, as long as and longer than what is copied; in one call and in several.

    What a model has put in the place of its tensors must not reach the client that comes next.
    """
    problem = problem_of(make())
    edge = data.draw(st.sampled_from([problem.layout.parameters, problem.layout.size]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "LONG", edge + data.draw(st.sampled_from([-1, 0, 1])))
        cut = data.draw(st.integers(0, CLIENTS - 1))
        found = trained(problem, [order[:cut], order[cut:]], own)
        patch.setattr(plain, "LONG", 0)
        alone = trained(problem, [[client] for client in range(CLIENTS)], own=False)
    assert torch.equal(found.models, alone.models)
    assert torch.equal(found.velocity, alone.velocity)
    assert np.array_equal(found.losses, alone.losses)


@pytest.mark.parametrize("long", [False, True])
def test_a_model_that_is_asked_is_not_changed(long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that changes its buffers when it is evaluated."""
    problem = problem_of(normalised())
    monkeypatch.setattr(plain, "LONG", 0 if long else problem.layout.size)
    updates = PlainUpdates(problem)
    model = problem.layout.vector(problem.model)
    before = model.clone()
    updates._model[1].train = lambda mode=True: updates._model[1]  # type: ignore[method-assign]
    updates.predict(model, torch.rand(6, 4))
    assert torch.equal(model, before)
