"""One table of tests that every engine enters; the reference engine is the truth."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from worlds import Problem as World
from worlds import classification, vector

import sdfeel
from sdfeel import Network, Schedule
from sdfeel.data import ClientData
from sdfeel.simulation import matrix
from sdfeel.simulation.engines.choose import ENGINES, Unsupported
from sdfeel.simulation.engines.engine import Engine, EngineState, Problem
from sdfeel.simulation.setup import make_problem

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")

SAMPLES = (12, 5, 9, 20, 4, 7)
CLUSTERS = [[0, 3], [4, 1, 2], [5]]
names = pytest.mark.parametrize("name", sorted(ENGINES))


@dataclass
class Case:
    """A model and data that some engine may do in another way."""

    model: Callable[[], nn.Module]
    shape: tuple[int, ...] = (4,)
    dtype: torch.dtype = torch.float32
    batch_size: int = 6  # above some clients' data and below others': batches of several lengths
    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    whole: bool = False  # inputs are whole numbers

    def world(self) -> World:
        rng = np.random.default_rng(1)
        inputs = [
            rng.integers(0, 5, (n, *self.shape))
            if self.whole
            else rng.normal(size=(n, *self.shape))
            for n in SAMPLES
        ]
        targets = [rng.integers(0, 3, n) for n in SAMPLES]
        if self.loss is functional.mse_loss:
            targets = [rng.normal(size=(n, 3)) for n in SAMPLES]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = self.model().to(self.dtype)
        if not self.whole:
            inputs = [x.astype(np.float32) for x in inputs]
        return World(Network(CLUSTERS, "path"), inputs, targets, model)


class Frozen(nn.Module):
    """A first layer that is not trained, and an activation written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)
        self.first.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.sin(self.first(x)))


class Tied(nn.Module):
    """One matrix used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.out = nn.Parameter(torch.randn(4, 4) / 2), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(x @ self.weight) @ self.weight.T)


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 3 * 3, 7),
        nn.ReLU(),
        nn.Linear(7, 3),
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


CASES: dict[str, Case] = {
    "mlp": Case(mlp),
    "cnn": Case(cnn, (2, 8, 8)),
    "float64": Case(mlp, dtype=torch.float64),
    "full gradients": Case(mlp, dtype=torch.float64, batch_size=100),
    "one sample a batch": Case(mlp, batch_size=1),
    "squared error": Case(mlp, loss=functional.mse_loss),
    "a loss of one's own": Case(mlp, loss=lambda o, t: functional.cross_entropy(2 * o, t)),
    "batch norm": Case(lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))),
    "layer norm": Case(lambda: nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3))),
    "frozen": Case(Frozen),
    "tied": Case(Tied),
    "embedding": Case(
        lambda: nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(12, 3)), whole=True
    ),
}


@names
@pytest.mark.parametrize("case", CASES)
def test_many_steps_equal_the_reference(name: str, case: str) -> None:
    """Unequal clusters, absent clients and batches of several lengths, over 40 iterations."""
    if name == "reference":
        pytest.skip("it is the truth")
    own = CASES[case]
    world = own.world()

    def run(engine: str) -> sdfeel.Result:
        return sdfeel.train(
            world.model,
            world.datasets,
            network=world.network,
            schedule=Schedule(3, 2, 2),
            steps=40,
            lr=0.1,
            batch_size=own.batch_size,
            loss=own.loss,
            participation=0.6,
            seed=5,
            engine=engine,
            evaluate_every=7,
        )

    mine = run(name)
    if mine.engine != name:
        pytest.skip(mine.engine_reason)
    truth = run("reference")
    close = 1e-11 if own.dtype == torch.float64 else 3e-4
    assert np.abs(vector(truth.model) - vector(world.model)).max() > 0.01  # something was learned
    for one, two in zip(
        [mine.model, *mine.server_models], [truth.model, *truth.server_models], strict=True
    ):
        for key, value in one.state_dict().items():
            np.testing.assert_allclose(
                value.numpy(), two.state_dict()[key].numpy(), rtol=close, atol=close, err_msg=key
            )
    columns = ["train_loss", "batch_loss", "disagreement"]
    np.testing.assert_allclose(
        mine.history[columns], truth.history[columns], rtol=10 * close, atol=10 * close
    )
    assert mine.seconds == truth.seconds
    assert mine.client_steps == truth.client_steps


# The interface, method by method, on one problem that every engine supports.


def make(dtype: torch.dtype = torch.float32, batch_size: int = 6) -> Problem:
    world = classification(SAMPLES, CLUSTERS, "path", hidden=5, dtype=dtype)
    world.model[1] = nn.ReLU()  # type: ignore[index]
    data = ClientData.from_datasets(world.datasets)
    return make_problem(
        world.model,
        data,
        world.network.with_samples(data.samples),
        loss=functional.cross_entropy,
        lr=0.1,
        batch_size=batch_size,
        seed=2,
        device=torch.device("cpu"),
    )


EVERYONE = np.ones(6, dtype=bool)


def build(name: str, problem: Problem | None = None) -> Engine:
    problem = problem or make()
    try:
        return ENGINES[name](problem, problem.layout.vector(problem.model))
    except Unsupported as reason:
        pytest.skip(str(reason))


def clients_of(engine: Engine) -> Tensor:
    clients = engine.state(with_clients=True).clients
    assert clients is not None
    return clients


@names
def test_all_models_start_from_the_same(name: str) -> None:
    engine = build(name)
    start = engine.problem.layout.vector(engine.problem.model)
    assert (clients_of(engine) == start).all()
    assert (engine.server_models() == start).all()
    assert torch.equal(engine.mean_model(None), start)


@names
def test_losses_are_those_before_each_update(name: str) -> None:
    engine = build(name)
    losses = engine.local_updates(1, 3, EVERYONE)
    assert losses.shape == (6, 3)
    problem = engine.problem
    for client in range(6):
        rows = torch.from_numpy(problem.batch(client, 1))
        with torch.no_grad():
            outputs = problem.model(problem.data.inputs[rows])
            expected = functional.cross_entropy(outputs, problem.data.targets[rows])
        assert losses[client, 0] == pytest.approx(float(expected), rel=1e-5)


@names
def test_who_is_absent_does_not_train(name: str) -> None:
    engine = build(name)
    before = clients_of(engine)
    present = np.array([True, False, True, False, False, True])
    losses = engine.local_updates(1, 2, present)
    assert losses.shape == (3, 2)
    changed = (clients_of(engine) != before).any(dim=1).numpy()
    np.testing.assert_array_equal(changed, present)


@names
def test_with_nobody_there_nothing_happens(name: str) -> None:
    engine = build(name)
    before = clients_of(engine)
    assert engine.local_updates(1, 2, ~EVERYONE).shape == (0, 2)
    engine.intra(np.zeros(6))
    engine.broadcast()
    assert torch.equal(clients_of(engine), before)


@names
def test_in_how_many_calls_the_updates_come_changes_no_bit(name: str) -> None:
    at_once, in_parts = build(name), build(name)
    losses = at_once.local_updates(1, 6, EVERYONE)
    parts = [in_parts.local_updates(a, b, EVERYONE) for a, b in ((1, 1), (2, 4), (5, 6))]
    np.testing.assert_array_equal(losses, np.hstack(parts))
    assert torch.equal(clients_of(at_once), clients_of(in_parts))


@names
def test_who_else_is_there_does_not_change_a_clients_update(name: str) -> None:
    together, alone = build(name), build(name)
    together.local_updates(1, 4, EVERYONE)
    alone.local_updates(1, 4, np.arange(6) == 3)
    torch.testing.assert_close(clients_of(together)[3], clients_of(alone)[3])


@names
def test_intra_takes_the_weighted_mean_of_those_present(name: str) -> None:
    engine = build(name, make(torch.float64))
    engine.local_updates(1, 3, EVERYONE)
    clients, servers = clients_of(engine).numpy(), engine.server_models().numpy()
    present = np.array([True, True, False, True, True, False])
    weights = engine.problem.network.shares.within_present(present)
    engine.intra(weights)
    after = engine.server_models().numpy()
    np.testing.assert_allclose(after[0], weights[[0, 3]] @ clients[[0, 3]], atol=1e-14)
    np.testing.assert_allclose(after[1], weights[[1, 4]] @ clients[[1, 4]], atol=1e-14)
    np.testing.assert_array_equal(after[2], servers[2])  # nobody came: it keeps its model
    np.testing.assert_array_equal(clients_of(engine).numpy(), clients)  # until the broadcast


@names
def test_intra_takes_a_rule_in_place_of_the_mean(name: str) -> None:
    engine = build(name)
    engine.local_updates(1, 2, EVERYONE)
    clients, before = clients_of(engine), engine.server_models()
    seen = []

    def rule(models: Tensor, weights: Tensor, own: Tensor) -> Tensor:
        seen.append((models.clone(), weights.clone(), own.clone()))
        return models.max(dim=0).values

    weights = engine.problem.network.shares.within_present(np.arange(6) != 2)
    engine.intra(weights, rule)
    assert torch.equal(engine.server_models()[1], clients[[4, 1]].max(dim=0).values)
    models, given, own = seen[1]
    assert torch.equal(models, clients[[4, 1]])
    np.testing.assert_allclose(given.numpy(), weights[[4, 1]], rtol=1e-6)
    assert torch.equal(own, before[1])


@names
@pytest.mark.parametrize("averager", ["paper", "chebyshev", "finite-time", "all-reduce", "exact"])
def test_inter_applies_the_averager(name: str, averager: str) -> None:
    engine = build(name, make(torch.float64))
    engine.local_updates(1, 3, EVERYONE)
    engine.intra(engine.problem.network.shares.within)
    before = engine.server_models().numpy()
    chosen = engine.problem.network.averager(averager, 3)
    engine.inter(chosen)
    expected = (before.T @ chosen.operator).T
    np.testing.assert_allclose(engine.server_models().numpy(), expected, atol=1e-11)


@names
@pytest.mark.parametrize("averager", ["paper", "chebyshev", "all-reduce"])
def test_inter_on_a_large_sparse_graph(
    name: str, averager: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two exchanges on a ring of thirty fill a sixth of the operator; unequal clusters."""
    monkeypatch.setattr(matrix, "COLUMNS", 10)  # several blocks, the last one not full
    world = classification([1 + d % 4 for d in range(30)], [[d] for d in range(30)], "ring")
    data = ClientData.from_datasets(world.datasets)
    problem = make_problem(
        world.model.double(),
        data,
        world.network.with_samples(data.samples),
        loss=functional.cross_entropy,
        lr=0.1,
        batch_size=6,
        seed=2,
        device=torch.device("cpu"),
    )
    engine = build(name, problem)
    before = np.random.default_rng(0).normal(size=(30, problem.layout.size))
    engine.restore(EngineState(torch.from_numpy(before)))
    chosen = problem.network.averager(averager, 2)
    engine.inter(chosen)
    expected = (before.T @ chosen.operator).T
    np.testing.assert_allclose(engine.server_models().numpy(), expected, atol=1e-12)


@names
def test_broadcast_gives_every_client_its_servers_model(name: str) -> None:
    engine = build(name)
    engine.local_updates(1, 2, EVERYONE)
    engine.intra(engine.problem.network.shares.within)
    engine.broadcast()
    servers = engine.server_models()
    for client, server in enumerate(engine.problem.network.clusters.server_of):
        assert torch.equal(clients_of(engine)[client], servers[server])


@names
def test_the_mean_model_is_the_weighted_mean_of_all_clients(name: str) -> None:
    engine = build(name, make(torch.float64))
    engine.local_updates(1, 3, EVERYONE)
    shares = engine.problem.network.shares
    before = engine.server_models()
    mean = engine.mean_model(shares.within)
    np.testing.assert_allclose(mean.numpy(), shares.client @ clients_of(engine).numpy(), atol=1e-14)
    assert torch.equal(engine.server_models(), before)  # asking changes nothing
    engine.intra(shares.within)
    np.testing.assert_allclose(engine.mean_model(None).numpy(), mean.numpy(), atol=1e-14)


@names
@pytest.mark.parametrize("with_clients", [True, False])
def test_going_on_from_a_state_changes_no_bit(name: str, with_clients: bool) -> None:
    engine, other = build(name), build(name)
    engine.local_updates(1, 3, EVERYONE)
    if not with_clients:
        engine.intra(engine.problem.network.shares.within)
        engine.broadcast()
    state = engine.state(with_clients)
    assert (state.clients is None) != with_clients
    kept = EngineState(
        state.servers.clone(), None if state.clients is None else state.clients.clone()
    )
    other.restore(kept)
    for each in (engine, other):
        each.local_updates(4, 6, EVERYONE)
    assert torch.equal(clients_of(engine), clients_of(other))
    assert torch.equal(engine.server_models(), other.server_models())
    # A state is a copy: what happened since did not reach it.
    assert torch.equal(state.servers, kept.servers)
    assert kept.clients is None or torch.equal(state.clients, kept.clients)  # type: ignore[arg-type]


@names
def test_predict_is_the_model_in_evaluation_mode(name: str) -> None:
    engine = build(name)
    inputs = torch.randn(1203, 4, generator=torch.Generator().manual_seed(0))
    other = copy.deepcopy(engine.problem.model).eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(-0.5)
        expected = other(inputs)
    outputs = engine.predict(engine.problem.layout.vector(other), inputs)
    torch.testing.assert_close(outputs, expected)


@names
def test_a_loss_that_is_not_finite_comes_back_as_it_is(name: str) -> None:
    problem = make(batch_size=100)
    rows = slice(int(problem.data.offsets[4]), int(problem.data.offsets[5]))
    problem.data.inputs[rows] = torch.nan
    losses = build(name, problem).local_updates(1, 2, EVERYONE)
    assert np.isnan(losses[4]).all()
    assert np.isfinite(np.delete(losses, 4, axis=0)).all()


@names
def test_the_problems_own_model_is_never_touched(name: str) -> None:
    problem = make()
    before = copy.deepcopy(problem.model.state_dict())
    engine = build(name, problem)
    engine.local_updates(1, 3, EVERYONE)
    engine.intra(problem.network.shares.within)
    engine.broadcast()
    engine.predict(engine.mean_model(None), problem.data.inputs)
    engine.close()
    for key, value in problem.model.state_dict().items():
        assert torch.equal(value, before[key])
