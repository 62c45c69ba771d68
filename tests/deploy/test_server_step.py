"""Server optimizers at edges do what they do in a simulation, also when an edge dies in between."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from as_simulated import as_simulated
from harness import World, content, run_to_the_end
from test_simulator import make_data, make_model
from torch import nn

from sdfeel.algorithm.methods.server_optimizers import SERVER_OPTIMIZERS
from sdfeel.deploy.client.torch_trainer import TorchTrainer, write_initial
from sdfeel.deploy.cluster.server_step import ServerStep, trained_values
from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.model.files import Layout, write_model
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import BLOCK, NotFinite, as_vector
from sdfeel.deploy.trust.provision import provision
from sdfeel.errors import InputError


def with_buffers() -> nn.Module:
    """A model whose vector ends with buffers, which no optimizer moves."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def deploy(folder: Path, model: nn.Module, sizes: tuple[int, ...], **tables: Any) -> Deployment:
    table = content(sizes, tau1=3, tau2=2, alpha=2, periods=6, **tables)
    deployment = parse_deployment(table | {"seed": 5}, folder)
    provision(deployment)
    write_initial(deployment, model)
    return deployment


def trainers(deployment: Deployment, make: Any = make_model) -> dict[str, Any]:
    return {
        client.name: TorchTrainer(
            make(), make_data(n, client.samples), n, seed=5, lr=0.1, batch_size=7
        )
        for n, client in enumerate(deployment.clients)
    }


def simulated(deployment: Deployment, make: Any = make_model) -> np.ndarray:
    tables = {"server_optimizer": deployment.server_optimizer, "codecs": dict(deployment.codecs)}
    return as_simulated(deployment, make, make_data, **tables)


@pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")
@pytest.mark.parametrize(
    ("optimizer", "averager", "make", "codecs"),
    [
        ({"name": "fedadam", "eta": 0.02}, "paper", make_model, {}),
        ({"name": "fedavgm", "momentum": 0.5}, "all-reduce", with_buffers, {}),
        ({"name": "fedyogi", "eta": 0.02}, "metropolis", make_model, {"up": "int8"}),
        ({"name": "fedadagrad", "eta": 0.02}, "paper", make_model, {"down": "float16"}),
    ],
    ids=["fedadam", "fedavgm-buffers", "fedyogi-up", "fedadagrad-down"],
)
def test_deployed_equals_simulated(
    tmp_path: Path, optimizer: dict[str, Any], averager: str, make: Any, codecs: dict[str, str]
) -> None:
    tables = {"server_optimizer": optimizer, "averager": averager, "codecs": codecs}
    deployment = deploy(tmp_path, make(), (1, 3, 2), **tables)
    deployed = run_to_the_end(deployment, trainers(deployment, make))
    # What a codec rounds may fall to the other side where two means differ in the last bit.
    rough = {"atol": 2e-3} if codecs else {"rtol": 1e-5, "atol": 5e-6}
    np.testing.assert_allclose(deployed, simulated(deployment, make), **rough)
    without = deployment.model_copy(update={"server_optimizer": None})
    assert np.abs(deployed - simulated(without, make)).max() > 1e-2


def test_kill_and_restart_change_nothing(tmp_path: Path) -> None:
    """What the optimizer remembers is in the checkpoint: the same bits come out."""
    optimizer = {"name": "fedadam", "eta": 0.02}
    (tmp_path / "calm").mkdir()
    calm = deploy(tmp_path / "calm", make_model(), (3,), server_optimizer=optimizer)
    expected = run_to_the_end(calm, trainers(calm))
    deployment = deploy(tmp_path, make_model(), (3,), server_optimizer=optimizer)

    async def run() -> np.ndarray:
        async with World(deployment) as world:
            await world.start_all(trainers(deployment))
            for period in (1, 3, 4):
                await world.until(lambda least=period: world.edges["a"].done >= least)
                await world.kill("a")
                await world.start_edge("a")
            await world.finish()
            assert not world.events("rows-begun-anew")
            return world.edges["a"].model.array()

    np.testing.assert_array_equal(asyncio.run(run()), expected[0])


@pytest.mark.parametrize("name", SERVER_OPTIMIZERS)
def test_block_by_block_is_as_a_whole(tmp_path: Path, name: str) -> None:
    """Through the checkpoint as well, in which rows may be shorter than the model."""
    size, trained, chance = 2 * BLOCK + 100, BLOCK + 7, np.random.default_rng(0)
    optimizer = SERVER_OPTIMIZERS[name]()
    step = ServerStep.with_rows(optimizer, trained, tmp_path, {})
    rows = {n: np.full(trained, row.first, "<f4") for n, row in optimizer.rows.items()}
    model = chance.normal(size=size).astype("<f4")
    store = Store(tmp_path / "state", {})
    store.acquire()
    for period in range(1, 4):
        mean = model + chance.normal(size=size).astype("<f4")
        taken = asyncio.run(step.take(as_vector(model), as_vector(mean))).array()
        whole = optimizer.take(model[:trained], mean[:trained], rows, None)  # type: ignore[arg-type]
        np.testing.assert_array_equal(taken, np.concatenate([whole, mean[trained:]]))
        store.save(EdgeCheckpoint(period, as_vector(taken), {}, rows=step.rows))
        checkpoint, problems = store.load(size)
        assert checkpoint is not None
        assert not problems
        step = ServerStep.with_rows(optimizer, trained, tmp_path, checkpoint.rows)
        for row, values in rows.items():
            np.testing.assert_array_equal(step.rows[f"{name}.{row}"].array(), values)
        model = taken
    store.release()


def test_a_move_that_is_not_finite_changes_nothing(tmp_path: Path) -> None:
    step = ServerStep.with_rows(SERVER_OPTIMIZERS["fedadagrad"](), 2, tmp_path, {})
    before = dict(step.rows)
    with pytest.raises(NotFinite):
        asyncio.run(step.take(as_vector(np.zeros(2)), as_vector(np.full(2, 1e30))))
    assert step.rows == before


def test_rows_of_another_optimizer_are_not_used(tmp_path: Path) -> None:
    kept = {"fedavgm.velocity": as_vector(np.ones(5))}
    step = ServerStep.with_rows(SERVER_OPTIMIZERS["fedadam"](), 5, tmp_path, kept)
    assert set(step.rows) == {"fedadam.first", "fedadam.second"}
    momentum = SERVER_OPTIMIZERS["fedavgm"]()
    assert ServerStep.with_rows(momentum, 5, tmp_path, kept).rows == kept
    other = ServerStep.with_rows(momentum, 6, tmp_path, kept)
    assert not other.rows["fedavgm.velocity"].array().any()


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ({}, 9),
        ({"trained": "7", "arrays": "[]"}, 7),
        ({"arrays": "[]"}, "how many of its values are trained"),
        ({"trained": "10"}, "10 of its 9 values"),
        ({"trained": "x"}, "x of its 9 values"),
    ],
)
def test_what_is_trained_is_in_the_first_model(
    tmp_path: Path, notes: dict[str, str], expected: int | str
) -> None:
    path = tmp_path / "initial.safetensors"
    write_model(path, Layout.flat(9), as_vector(np.zeros(9)), notes)
    if isinstance(expected, int):
        assert trained_values(path, 9) == expected
        return
    with pytest.raises(InputError, match=expected):
        trained_values(path, 9)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("fedadm", "server_optimizer = 'fedadm': did you mean 'fedadam'"),
        ({"name": "fedadam", "beta3": 1}, r"server_optimizer.beta3 = 1: .*'beta2'"),
        ({"name": "fedadam", "eta": -1}, "server_optimizer.eta = -1"),
        (7, "server_optimizer = '?7"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, value: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        parse_deployment(content((1,), server_optimizer=value), tmp_path)
