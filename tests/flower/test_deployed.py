"""The three apps, unmodified, as clients of a deployment of three edges: the simulator's models."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy_app
import pytest
import sklearn_app
import torch
import torch_app
from flwr.app import ConfigRecord
from harness import World, content

import sdfeel
from sdfeel import InputError, RunError, Schedule
from sdfeel.deploy.client.flower_trainer import flower_trainer
from sdfeel.deploy.client.torch_trainer import write_initial
from sdfeel.deploy.client.trainers import make_trainer
from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.facts.metrics import ClientMetrics
from sdfeel.deploy.facts.results import Results
from sdfeel.deploy.topology import Topology
from sdfeel.flower.generators import seeded

APPS = {"torch_app": torch_app, "numpy_app": numpy_app, "sklearn_app": sklearn_app}
FOLDER = Path(__file__).parent / "apps"


def deployment_of(folder: Path, name: str, **tables: Any) -> Deployment:
    """Three edges with two clients each, which hold what the apps' clients hold."""
    local = {"trainer": f"flower:{name}:app", "lr": 0.1, "options": {"local-epochs": 3}}
    if name == "sklearn_app":
        local["model"] = "sklearn_app:initial"
    else:
        local["model"] = "torch_app:Net"
    table = content((2, 2, 2), tau1=3, tau2=2, alpha=2, periods=4, averager="metropolis")
    for client, samples in zip(table["clients"], torch_app.SAMPLES, strict=True):
        client["samples"] = samples
    table |= {"local": local, "security": {"plaintext": True}, **tables}
    deployment = parse_deployment(table, folder)
    write_initial(deployment)
    return deployment


# Clients are threads of one process here, and what an app ignores it ignores for its own thread.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", APPS)
def test_deployed_equals_simulated(tmp_path: Path, name: str) -> None:
    deployment = deployment_of(tmp_path, name)
    trainers = {c.name: make_trainer(deployment, c.name) for c in deployment.clients}

    async def run() -> tuple[list[np.ndarray], list[Results]]:
        async with World(deployment) as world:
            await world.start_all(trainers)
            await world.finish()
            models = [edge.model.array().copy() for edge in world.edges.values()]
            return models, [edge.results for edge in world.edges.values()]

    deployed, measured = asyncio.run(run())
    torch.manual_seed(deployment.seed)
    initial = sklearn_app.initial() if name == "sklearn_app" else torch_app.Net().state_dict()
    simulated = sdfeel.train(
        flower=APPS[name].app,
        initial=initial,
        network=Topology(deployment).at(0).network,
        schedule=Schedule(3, 2, 2),
        averager="metropolis",
        rounds=4,
        lr=0.1,
        run_config={"local-epochs": 3},
        samples=torch_app.SAMPLES,
    )
    for found, expected in zip(deployed, simulated.servers, strict=True):
        np.testing.assert_allclose(found, expected.float().numpy(), rtol=1e-4, atol=1e-5)
    # What an app measures on its own data is what clients say, and never the run's own accuracy.
    assert not any("test_accuracy" in results.last for results in measured)
    claims = [row for results in measured for row in results.claims.values()]
    assert len(claims) == len(torch_app.SAMPLES)
    assert all("test_accuracy" in row for row in claims)


def test_state_survives_a_restart_and_not_a_new_beginning(tmp_path: Path) -> None:
    deployment = deployment_of(tmp_path, "torch_app")
    model = np.zeros(83, dtype=np.float32)

    def trainer() -> Any:
        return flower_trainer(deployment, "c0", "torch_app:app")

    first = trainer()
    first.train(model, 1, 3)
    first._own.client.state["seen"] = ConfigRecord({"times": 7})
    first.train(model, 4, 3)
    second = trainer()
    second.train(model, 7, 3)
    assert second._own.client.state["seen"]["times"] == 7
    fresh = trainer()
    fresh.train(model, 1, 3)
    assert "seen" not in fresh._own.client.state


def test_buffers_and_tied_weights_reach_the_app_in_its_order(tmp_path: Path) -> None:
    """A state dict mixes what is trained and what is not: an app must get it as it is."""

    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4)
            self.one = torch.nn.Linear(4, 4, bias=False)
            self.two = torch.nn.Linear(4, 4, bias=False)
            self.two.weight = self.one.weight

    deployment = deployment_of(tmp_path, "torch_app")
    module = Mixed()
    write_initial(deployment, module)
    layout = flower_trainer(deployment, "c0", "torch_app:app")._own.client.layout
    assert layout.names == list(module.state_dict())
    vector = np.arange(layout.size, dtype=np.float32)
    record = layout.record(vector)
    back = record.to_torch_state_dict()
    assert back["norm.num_batches_tracked"].dtype == torch.int64
    assert torch.equal(back["one.weight"], back["two.weight"])
    np.testing.assert_array_equal(layout.vector(record, vector), vector)


def test_another_number_of_examples_is_named(tmp_path: Path) -> None:
    table = deployment_of(tmp_path, "torch_app").model_dump(mode="json")
    table["clients"][2]["samples"] = 99
    trainer = make_trainer(parse_deployment(table, tmp_path), "c2")
    with pytest.raises(RunError, match="client c2, `train` of round 1: num-examples = 26, and 99"):
        trainer.train(np.zeros(83, dtype=np.float32), 1, 3)


def test_configs_of_nodes_and_messages_reach_the_app(tmp_path: Path) -> None:
    """`local.node_config` and `local.train_config`, and the generators' seed."""
    (tmp_path / "telling_app.py").write_text(
        "import random\n"
        "from flwr.clientapp import ClientApp\n"
        "from flwr.app import Message, MetricRecord, RecordDict\n"
        "app = ClientApp()\n"
        "@app.train()\n"
        "def train(msg, context):\n"
        "    place, mu = context.node_config['place'], msg.content['config']['mu']\n"
        "    metrics = {'num-examples': 3, 'place': place, 'mu': mu, 'drawn': random.random()}\n"
        "    records = {'arrays': msg.content['arrays'], 'metrics': MetricRecord(metrics)}\n"
        "    return Message(RecordDict(records), reply_to=msg)\n"
    )
    local = {
        "trainer": "flower:telling_app:app",
        "model": "torch_app:Net",
        "node_config": {"place": [10, 20, 30, 40, 50, 60]},
        "train_config": {"mu": 0.5},
    }
    table = content((2, 2, 2), tau1=3, tau2=2, alpha=2, periods=4, averager="metropolis")
    for client in table["clients"]:
        client["samples"] = 3
    table |= {"local": local, "security": {"plaintext": True}}
    deployment = parse_deployment(table, tmp_path)
    write_initial(deployment)
    model = np.zeros(83, dtype=np.float32)
    measures = []
    for name in ("c1", "c2"):
        trainer = make_trainer(deployment, name)
        trainer.train(model, 4, 3)
        measures.append(dict(trainer.measures))  # type: ignore[attr-defined]
    assert [own["batch_place"] for own in measures] == [20, 30]
    assert [own["batch_mu"] for own in measures] == [0.5, 0.5]
    with seeded(deployment.seed, 1, 2, 0):
        assert measures[0]["batch_drawn"] == random.random()  # noqa: S311


def test_a_model_file_without_names_is_refused(tmp_path: Path) -> None:
    from sdfeel.deploy.model.store import write_safetensors
    from sdfeel.deploy.model.vectors import as_vector

    deployment = deployment_of(tmp_path, "torch_app")
    write_safetensors(tmp_path / "initial.safetensors", as_vector(np.zeros(83)), {})
    with pytest.raises(InputError, match=r"model\.initial"):
        make_trainer(deployment, "c0")


def test_the_client_program_takes_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--set trainer=flower:torch_app:app` only the option decides what it runs."""
    from typer.testing import CliRunner

    from sdfeel.cli import app
    from sdfeel.deploy.client import client as client_module

    found: dict[str, Any] = {}

    class Program:
        metrics = ClientMetrics()
        edge = None

        def __init__(self, deployment: Deployment, name: str, trainer: Any, log: Any) -> None:
            found.update(name=name, size=trainer.size, samples=trainer.samples)
            found.update(node_config=trainer._own.client.node_config)

        async def run(self) -> None:
            pass

    monkeypatch.setattr(client_module, "ClientProgram", Program)
    deployment = deployment_of(tmp_path, "torch_app")
    table = deployment.model_dump(mode="json", exclude={"local": {"trainer"}}, exclude_none=True)
    file = tmp_path / "deployment.toml"
    file.write_text(_toml(table))
    monkeypatch.syspath_prepend(str(FOLDER))
    words = ["client", str(file), "c1", "--set", "trainer=flower:torch_app:app"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, (result.output, result.exception)
    assert found == {"name": "c1", "size": 83, "samples": 19, "node_config": {}}
    with_config = [*words, "--node-config", 'dataset-path="data/1" fast=true']
    assert CliRunner().invoke(app, with_config).exit_code == 0
    assert found["node_config"] == {"dataset-path": "data/1", "fast": True}
    problem = CliRunner().invoke(app, [*words, "--node-config", "nonsense"]).exception
    assert isinstance(problem, InputError)
    words[-1] = "trainer=flower:torch_app:Net"
    assert isinstance(CliRunner().invoke(app, words).exception, InputError)


def _toml(table: dict[str, Any]) -> str:
    """Tables and lists of them, as deployment files have them."""

    def text(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f'"{k}" = {text(v)}' for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(text, value)) + "]"
        return json.dumps(value)

    return "\n".join(f"{key} = {text(value)}" for key, value in table.items())
