from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from worlds import classification, vector

import sdfeel
from sdfeel import Schedule
from sdfeel.data import ClientData
from sdfeel.simulation.engines import vectorised
from sdfeel.simulation.setup import make_problem

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")


def run(chunk: int | None, monkeypatch: pytest.MonkeyPatch) -> sdfeel.Result:
    if chunk:
        monkeypatch.setattr(vectorised, "CHUNK_CLIENTS", chunk)
    problem = classification(
        (12, 5, 9, 20, 4, 7, 11), [[0, 3, 6], [1, 2, 4], [5]], hidden=6, dtype=torch.float64
    )
    return sdfeel.train(
        problem.model,
        problem.datasets,
        network=problem.network,
        schedule=Schedule(4, 2, 1),
        steps=30,
        lr=0.1,
        batch_size=6,
        participation=0.8,
        engine="vectorised",
    )


@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
def test_the_size_of_a_chunk_changes_nothing(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by the chunk; the numbers must not know of it."""
    whole, parts = run(None, monkeypatch), run(chunk, monkeypatch)
    np.testing.assert_allclose(vector(parts.model), vector(whole.model), atol=1e-13)
    np.testing.assert_allclose(
        parts.history["batch_loss"][1:], whole.history["batch_loss"][1:], rtol=1e-12
    )


def test_a_large_model_goes_through_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorised, "CHUNK_NUMBERS", 3 * 2 * 57)
    sizes = []
    steps = vectorised.VectorisedEngine._steps
    monkeypatch.setattr(
        vectorised.VectorisedEngine,
        "_steps",
        lambda self, network, clients, ks: (
            sizes.append(len(clients)) or steps(self, network, clients, ks)
        ),
    )
    run(None, monkeypatch)
    assert max(sizes) == 2


def test_dropout_differs_between_clients_and_iterations() -> None:
    """One seed for a chunk must not mean one mask for all of its clients."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 3))
    world = classification([8] * 4, [[0, 1, 2, 3]], "path")
    data = ClientData.from_datasets([world.datasets[0]] * 4)  # all clients hold the same
    problem = make_problem(
        model,
        data,
        world.network,
        loss=functional.cross_entropy,
        lr=1e-9,
        batch_size=100,
        seed=0,
        device=torch.device("cpu"),
    )
    engine = vectorised.VectorisedEngine(problem, problem.layout.vector(problem.model))
    losses = engine.local_updates(1, 3, np.ones(4, dtype=bool))
    assert len(set(losses.ravel().tolist())) == 12


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("draws", [False, True])
def test_the_number_of_threads_changes_nothing_but_rounding(draws, threads, monkeypatch) -> None:
    """There is one generator for all threads: a model with dropout must stay on one of them."""
    monkeypatch.setattr(vectorised, "CHUNK_CLIENTS", 2)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5 if draws else 0.0), nn.Linear(16, 3)
    )
    world = classification([9, 12, 8, 7, 11, 9, 10], [[0, 1, 2, 3, 4, 5, 6]], "path")
    found = []
    for count in (1, 2, 3):
        threads(count)
        problem = make_problem(
            copy.deepcopy(model),
            ClientData.from_datasets(world.datasets),
            world.network,
            loss=functional.cross_entropy,
            lr=0.1,
            batch_size=5,
            seed=0,
            device=torch.device("cpu"),
        )
        engine = vectorised.VectorisedEngine(problem, problem.layout.vector(problem.model))
        losses = [engine.local_updates(k, k + 2, np.ones(7, dtype=bool)) for k in (1, 4, 7)]
        found.append((np.concatenate(losses, axis=1), engine.W.clone()))
        assert engine._draws is draws
        assert torch.get_num_threads() == count
        engine.close()
    for losses, models in found[1:]:
        np.testing.assert_allclose(losses, found[0][0], rtol=1e-5)
        torch.testing.assert_close(models, found[0][1], rtol=1e-4, atol=1e-6)
