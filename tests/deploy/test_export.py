"""Models out of a deployment: by name and shape, into any module by load_state_dict."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from harness import World, as_toml, content, deploy, import_path, run_to_the_end
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from sdfeel.cli import deploy as commands
from sdfeel.deploy.client.measuring import Measuring
from sdfeel.deploy.client.torch_trainer import TorchTrainer, write_initial
from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.model.files import read_model
from sdfeel.deploy.operate.export import export
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.provision import provision
from sdfeel.engines.parameters import ParameterLayout
from sdfeel.errors import InputError, RunError


class Odd(nn.Module):
    """Everything that a state dict may hold beside plain weights."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Linear(6, 4, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.back = nn.Linear(4, 6, bias=False)
        self.back.weight = nn.Parameter(torch.zeros(6, 4))
        self.head = nn.Linear(6, 3)
        self.twin = nn.Linear(6, 3)
        self.twin.weight = self.head.weight  # tied
        self.register_buffer("hidden", torch.ones(2), persistent=False)
        self.register_buffer("count", torch.tensor([5]))
        self.register_buffer("flag", torch.tensor([True]))
        self.to(dtype)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        inside = self.frozen(self.norm(self.embed(inputs)))
        return self.head(self.back(inside) + inputs) + self.twin(inputs) * self.hidden.mean()


def data(number: int, samples: int) -> TensorDataset:
    drawn = torch.Generator().manual_seed(100 + number)
    inputs = torch.randn(samples, 6, generator=drawn)
    return TensorDataset(inputs, torch.randint(0, 3, (samples,), generator=drawn))


def trained(folder: Path, dtype: torch.dtype, measuring: Measuring | None = None) -> Deployment:
    """Two edges, a few periods, with the module above."""
    deployment = parse_deployment(content((1, 2), tau1=2, periods=4), folder)
    provision(deployment)
    write_initial(deployment, Odd(dtype))
    trainers = {
        client.name: TorchTrainer(
            Odd(dtype), data(n, client.samples), n, 0, 0.05, 5, measuring=measuring
        )
        for n, client in enumerate(deployment.clients)
    }
    np.save(folder / "models.npy", np.stack(run_to_the_end(deployment, trainers)))
    return deployment


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_result_loads_by_load_state_dict(tmp_path: Path, dtype: torch.dtype) -> None:
    deployment = trained(tmp_path, dtype)
    made = export(deployment, tmp_path / "out" / "model.safetensors")
    assert made.periods == {"a": 4, "b": 4}
    found, module = load_file(made.path), Odd(dtype)
    assert set(found) == set(module.state_dict())
    module.load_state_dict(found, strict=True)
    models, topology = np.load(tmp_path / "models.npy"), Topology(deployment)
    shares = np.array([topology.at(0).share(name) for name in topology.at(0).edges])
    expected = (shares[:, None] * models.astype(float)).sum(0)
    layout = ParameterLayout.of(module)
    whole = layout.split(torch.from_numpy(expected))
    own = module.state_dict()
    for name, value in whole.items():
        if name != "hidden":
            torch.testing.assert_close(own[name].double(), value, rtol=1e-6, atol=1e-6)
    assert torch.equal(own["twin.weight"], own["head.weight"])
    assert torch.equal(own["frozen.weight"], Odd(dtype).frozen.weight)
    assert own["count"].item() == 5
    assert not torch.equal(own["embed.weight"], Odd(dtype).embed.weight), "it was trained"


def test_an_edge_with_a_run_folder_and_an_export_need_no_torch(tmp_path: Path) -> None:
    """Averaging needs none of it: an edge may be a small machine."""
    deployment = deploy(tmp_path, sizes=(1,), periods=2)
    file, fake = tmp_path / "deployment.toml", tmp_path / "without"
    file.write_text(as_toml(deployment.model_dump(mode="json")))
    fake.mkdir()
    (fake / "torch.py").write_text("raise ImportError('there is no torch here')")
    environment = {**os.environ, "PYTHONPATH": f"{fake}:{import_path()}"}
    program = [sys.executable, "-m", "sdfeel.deploy.operate.programs", "edge", str(file), "a"]

    async def run() -> int:
        edge = await asyncio.create_subprocess_exec(
            *program, str(tmp_path / "run"), env=environment
        )
        async with World(deployment) as world:
            world.start_client("c0")
            await asyncio.wait([world.tasks["c0"]])
            return await edge.wait()

    assert asyncio.run(run()) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["iterations"] == deployment.schedule.iterations
    out = tmp_path / "model.safetensors"
    command = ["-c", "from sdfeel.cli import main; main()", "export", str(file), "--out", str(out)]
    subprocess.run([sys.executable, *command], env=environment, check=True)
    assert read_model(out).layout.size == read_model(tmp_path / "run" / out.name).layout.size


def test_one_edge_alone_and_edges_without_a_checkpoint(tmp_path: Path) -> None:
    deployment = trained(tmp_path, torch.float32)
    one = export(deployment, tmp_path / "b.safetensors", ["b"])
    assert one.periods == {"b": 4}
    models = np.load(tmp_path / "models.npy")
    np.testing.assert_allclose(one.model.array(), models[1])
    with pytest.raises(InputError, match="known: a, b"):
        export(deployment, tmp_path / "x.safetensors", ["z"])
    with pytest.raises(RunError, match="edge a has no checkpoint"):
        export(deployment, tmp_path / "x.safetensors", state=tmp_path / "elsewhere")


def test_export_by_command(tmp_path: Path) -> None:
    deployment = trained(tmp_path, torch.float32)
    file = tmp_path / "deployment.toml"
    file.write_text(as_toml(deployment.model_dump(mode="json")))
    app = typer.Typer()
    for command in (commands.export, commands.rollback):
        app.command()(command)
    run = CliRunner().invoke
    result = run(app, ["export", str(file), "--out", str(tmp_path / "m.safetensors"), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["periods"] == {"a": 4, "b": 4}
    Odd().load_state_dict(load_file(tmp_path / "m.safetensors"))
    listed = run(app, ["rollback", str(file)]).output.splitlines()
    assert [line.split(":")[0] for line in listed] == ["a", "b"]
    back = run(app, ["rollback", str(file), "--to", "2"])
    assert back.exit_code == 0, back.exception
    assert "goes on from period" in back.output
    exported = export(deployment, tmp_path / "m.safetensors")
    assert set(exported.periods.values()) <= {1, 2}


@pytest.mark.parametrize(
    "path", ["torch.nn.functional:mse_loss", "torch.nn:MSELoss", "torch.nn:SmoothL1Loss"]
)
def test_other_losses(tmp_path: Path, path: str) -> None:
    """By import path; a class is made an object of. One step equals one by hand."""
    table = content((1,)) | {"local": {"trainer": "toy:trainer", "loss": path}}
    measuring = Measuring.of(parse_deployment(table, tmp_path))
    assert measuring.metrics == {}
    torch.manual_seed(0)
    inputs, targets = torch.randn(8, 2), torch.randn(8, 1)
    model = nn.Linear(2, 1)
    trainer = TorchTrainer(model, TensorDataset(inputs, targets), 0, 0, 0.1, 8, measuring=measuring)
    layout = ParameterLayout.of(model)
    start = layout.vector(model).detach().clone()
    by_hand = nn.Linear(2, 1)
    layout.load(by_hand, start)
    loss = measuring.loss(by_hand(inputs), targets)
    loss.backward()
    expected = torch.cat([(p - 0.1 * p.grad).reshape(-1) for p in by_hand.parameters()])
    found = trainer.train(start.numpy(), 1, 1)
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert trainer.measures["batch_loss"] == pytest.approx(float(loss.detach()), rel=1e-5)


def test_the_usual_loss_brings_accuracy_and_own_metrics_replace_it(tmp_path: Path) -> None:
    usual = Measuring.of(parse_deployment(content((1,)), tmp_path))
    assert usual.loss is functional.cross_entropy
    assert set(usual.metrics) == {"accuracy"}
    table = content((1,))
    table["local"]["metrics"] = {"l1": "torch.nn.functional:l1_loss"}
    own = Measuring.of(parse_deployment(table, tmp_path))
    assert set(own.metrics) == {"l1"}
    table["local"]["metrics"] = {"l1": "torch.nn.functional:nothing"}
    with pytest.raises(InputError, match=r"local\.metrics\.l1"):
        Measuring.of(parse_deployment(table, tmp_path))
