"""Codecs and optimizers in a deployment: the simulator's result, and the bytes that they say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from harness import World, content, run_to_the_end
from torch import nn
from torch.utils.data import TensorDataset

from sdfeel.algorithm.methods.averaging import Rule
from sdfeel.algorithm.methods.codecs import CODECS
from sdfeel.algorithm.schedule import Schedule
from sdfeel.api import train
from sdfeel.deploy.client.torch_trainer import TorchTrainer, write_initial
from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.model.store import write_safetensors
from sdfeel.deploy.model.vectors import BLOCK, as_vector
from sdfeel.deploy.topology import Topology
from sdfeel.engines.parameters import ParameterLayout
from sdfeel.experiments.config import run_config
from sdfeel.simulation.settings import Settings

PERIODS, TAU1 = 4, 3


def make_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3))  # 403 values: two blocks


def make_data(number: int, samples: int) -> TensorDataset:
    drawn = torch.Generator().manual_seed(100 + number)
    inputs = torch.randn(samples, 6, generator=drawn)
    return TensorDataset(inputs, torch.randint(0, 3, (samples,), generator=drawn))


def both(folder: Path, sizes: tuple[int, ...] = (2,), **tables: Any) -> tuple[Any, Any]:
    """Models of the edges, deployed and simulated by the same tables.

    Two clients with as many samples each: their mean has the same bits however it is added up.
    """
    table = content(sizes, tau1=TAU1, periods=PERIODS, security={"plaintext": True}, **tables)
    if "averaging" in tables:
        table["averaging"] = {"rule": table["averaging"].name, "limit": table["averaging"].limit}
    for client in table["clients"]:
        client["samples"] = 20
    deployment = parse_deployment(table | {"seed": 5}, folder)
    write_initial(deployment, make_model())
    datasets = [make_data(n, 20) for n in range(len(deployment.clients))]
    local = deployment.local
    trainers = {
        client.name: TorchTrainer(
            make_model(), datasets[n], n, 5, deployment.lr, local.batch_size, rule=local.rule
        )
        for n, client in enumerate(deployment.clients)
    }
    deployed = run_to_the_end(deployment, trainers)
    own = {"optimizer": dict(local.model_extra or {}), "codecs": tables.get("codecs")}
    rate = {"lr": local.lr, "rate": tables.get("rate", "constant")}
    settings = Settings.take_from({**own, **rate})
    simulated = train(
        make_model(),
        datasets,
        network=Topology(deployment).at(0).network,
        schedule=Schedule(TAU1, 1, 1),
        steps=TAU1 * PERIODS,
        batch_size=local.batch_size,
        seed=5,
        engine="reference",
        evaluate_every=TAU1 * PERIODS,
        averaging_rule=tables.get("averaging"),
        **{key: getattr(Settings.of(settings), key) for key in ("optimizer", "lr", "codecs")},
    )
    layout = ParameterLayout.of(make_model())
    expected = [layout.vector(model).detach().numpy() for model in simulated.server_models]
    assert not np.allclose(deployed[0], layout.vector(make_model()).detach().numpy(), atol=1e-3)
    return deployed, expected


@pytest.mark.parametrize(
    "codecs",
    [
        {},
        *({"up": name} for name in ("float16", "bfloat16", "int8", "int4", "top-k")),
        *({"down": name} for name in ("float16", "bfloat16", "int8", "int4", "top-k")),
        {"up": "int8", "down": "int8"},
        {"up": "int4", "down": "bfloat16"},
        {"up": "top-k", "down": "top-k"},
    ],
    ids=str,
)
def test_bit_for_bit_the_simulators(tmp_path: Path, codecs: dict[str, str]) -> None:
    """Residuals, draws and what clients hold follow the simulator over several periods."""
    deployed, simulated = both(tmp_path, codecs=codecs, local={"lr": 0.1})
    assert deployed[0].tobytes() == simulated[0].tobytes()


@pytest.mark.parametrize(
    ("local", "rate"),
    [
        ({"name": "momentum", "momentum": 0.8, "nesterov": True}, {}),
        ({"name": "momentum", "memory": "keep", "clip": 0.5}, {}),
        ({"prox": 0.7, "weight_decay": 0.1}, {"name": "cosine", "over": 9, "warmup": 4}),
        ({"name": "adamw", "lr": 0.01}, {"name": "step", "every": 5, "factor": 0.5}),
    ],
    ids=str,
)
def test_optimizers_and_rates_are_the_simulators(
    tmp_path: Path, local: dict[str, Any], rate: dict[str, Any]
) -> None:
    deployed, simulated = both(tmp_path, local={"lr": 0.1, **local}, rate=rate)
    assert deployed[0].tobytes() == simulated[0].tobytes()


def test_updates_are_measured_from_what_clients_hold(tmp_path: Path) -> None:
    """Which is not the edge's model: int4 down leaves up to a seventh of a change out."""
    codecs, rule = {"down": "int4"}, Rule("clip", 0.05)
    deployed, simulated = both(tmp_path, codecs=codecs, averaging=rule, local={"lr": 0.1})
    np.testing.assert_allclose(deployed[0], simulated[0], atol=1e-6)


@pytest.mark.parametrize("codecs", [{"up": "int8", "down": "int8"}, {"up": "top-k"}], ids=str)
def test_between_edges_only_rounding_differs(tmp_path: Path, codecs: dict[str, str]) -> None:
    """A value that is rounded the other way is one step of a block off, and there are few."""
    deployed, simulated = both(tmp_path, (2, 1, 2), codecs=codecs, local={"lr": 0.1})
    for found, expected in zip(deployed, simulated, strict=True):
        np.testing.assert_allclose(found, expected, atol=5e-3)
        assert np.mean(np.abs(found - expected) > 1e-5) < 0.1


def deploy_toy(folder: Path, size: int, **tables: Any) -> Deployment:
    table = content((2,), security={"plaintext": True}, **tables)
    write_safetensors(folder / "initial.safetensors", as_vector(np.zeros(size)), {})
    return parse_deployment(table, folder)


@pytest.mark.parametrize("size", [toy.SIZE, 2 * BLOCK + 257])
@pytest.mark.parametrize(
    "codecs",
    [{"up": "int8", "down": "int4"}, {"up": "bfloat16"}, {"up": "top-k", "down": "top-k"}],
    ids=str,
)
def test_bytes_on_the_wire_are_those_of_the_codecs(
    tmp_path: Path, size: int, codecs: dict[str, str]
) -> None:
    deployment = deploy_toy(tmp_path, size, periods=5, codecs=codecs)

    async def run() -> tuple[float, float]:
        async with World(deployment) as world:
            world.size = size
            await world.start_all()
            await world.finish()
            for client in world.clients.values():
                assert client.accepted == [1, 2, 3, 4, 5]
            value = world.edges["a"].metrics.value
            ways = ("in", "out")
            return tuple(  # type: ignore[return-value]
                value("sdfeel_model_bytes_total", peers="clients", direction=way) for way in ways
            )

    up, down = asyncio.run(run())
    lengths = {
        way: -(-CODECS[codecs.get(way, "float32")]().bits(size) // 8) for way in ("up", "down")
    }
    spare = 0
    if size > BLOCK and "top-k" in codecs.values():  # a place in a chunk is shorter
        spare = 5 * size // 100 * 2 // 8
    whole, changes = 4 * size, 4 * lengths["down"]
    assert 2 * (whole + changes - spare) <= down <= 2 * (whole + changes), "first the whole model"
    messages = 2 * 5 * (1 + (-(-size // BLOCK) if size > BLOCK else 0))
    assert -2 * spare < up - 2 * 5 * lengths["up"] < 150 * messages, "but for headers"


def test_a_run_file_and_a_deployment_file_mean_the_same_optimizer(tmp_path: Path) -> None:
    rule = {"name": "momentum", "momentum": 0.5, "prox": 0.1}
    shape = {"name": "cosine", "over": 100}
    deployment = deploy_toy(tmp_path, 3, local={"lr": 0.2, **rule}, rate=shape)
    run = run_config({"lr": 0.2, "optimizer": rule, "rate": shape}).settings
    assert deployment.local.rule == run.optimizer
    assert deployment.lr == run.lr
