"""What training comes to is seen while it goes on: log, metric, status, run folder, figures."""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import toy
import typer
from harness import World, as_toml, content, deploy, free_ports, import_path
from rich.console import Console
from safetensors.torch import load_file
from test_seeing import get
from typer.testing import CliRunner

from sdfeel.algorithm.schedule import Schedule
from sdfeel.api import train
from sdfeel.cli import deploy as commands
from sdfeel.cli.plot import plot
from sdfeel.deploy.client.torch_trainer import trainer as torch_trainer
from sdfeel.deploy.client.torch_trainer import write_initial
from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.edge.edge import EdgeServer
from sdfeel.deploy.facts.concern import Concern
from sdfeel.deploy.facts.logs import Log
from sdfeel.deploy.facts.metrics import Metrics
from sdfeel.deploy.facts.results import KINDS, MOST, Results
from sdfeel.deploy.model.store import EdgeCheckpoint, Store, write_safetensors
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.operate.asking import printable
from sdfeel.deploy.operate.edge_status import EdgeStatus, LinkRow, read_row
from sdfeel.deploy.operate.launch import launch
from sdfeel.deploy.operate.status import ask, is_well, status_table
from sdfeel.deploy.operate.watching import follow
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.provision import provision
from sdfeel.errors import InputError
from sdfeel.records.reading import read_run

# What a user has beside the deployment file.
PARTS = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

SIZES = {sizes}

def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

def _drawn(seed, samples):
    drawn = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 6, generator=drawn)
    return TensorDataset(inputs, (inputs[:, :3] ** 2).argmax(1))

def data(name, number):
    return _drawn(100 + number, SIZES[number])

def holdout(edge):
    return _drawn(7, 50)

def broken(edge):
    return TensorDataset(torch.zeros(3, 99), torch.zeros(3, dtype=torch.long))
"""


def parts(folder: Path, sizes: tuple[int, ...], name: str, **options: Any) -> Deployment:
    """A deployment with a model, data and a holdout in a module beside its file."""
    table = content(sizes, tau1=2, **options)
    counts = [client["samples"] for client in table["clients"]]
    (folder / f"{name}.py").write_text(PARTS.format(sizes=counts))
    table["local"] = {"model": f"{name}:model", "data": f"{name}:data", "lr": 0.1, "batch_size": 5}
    table["seed"] = 5
    table["evaluation"] = {"every": 4, "holdout": f"{name}:holdout"} | options.get("look", {})
    table.pop("look", None)
    deployment = parse_deployment(table, folder)
    provision(deployment)
    write_initial(deployment)
    return deployment


def run_edges(deployment: Deployment, out: Path) -> dict[str, EdgeServer]:
    async def run() -> dict[str, EdgeServer]:
        async with World(deployment) as world:
            for edge in deployment.edges:
                server = EdgeServer(
                    deployment, edge.name, world.folder / "state" / edge.name, out=out / edge.name
                )
                await server.start()
                world.edges[edge.name] = server
                world.tasks[edge.name] = asyncio.create_task(server.run())
            for client in deployment.clients:
                world.start_client(client.name, torch_trainer(deployment, client.name))
            await world.finish()
            return dict(world.edges)

    return asyncio.run(run())


def test_a_run_folder_of_a_deployment_is_that_of_the_simulator(tmp_path: Path) -> None:
    """One edge, so that its model is u_k: the losses are the simulator's, row by row."""
    deployment = parts(tmp_path, (3,), "parts_one", periods=8)
    (edge,) = run_edges(deployment, tmp_path / "runs").values()
    record = read_run(tmp_path / "runs" / "a")
    import parts_one

    datasets = [parts_one.data("", n) for n in range(3)]
    simulated = train(
        parts_one.model(),
        datasets,
        network=Topology(deployment).at(0).network,
        schedule=Schedule(2, 1, 1),
        steps=16,
        lr=0.1,
        batch_size=5,
        seed=5,
        engine="reference",
        evaluate_every=4,
        test=parts_one.holdout("a"),
    )
    expected = simulated.history.set_index("iteration")
    found = record.metrics.set_index("iteration")
    assert list(found.index) == [0, 4, 8, 12, 16]
    for column in ("train_loss", "train_accuracy"):
        claimed = found[f"clients_{column}"]
        np.testing.assert_allclose(claimed[:-1], expected[column][:-1], rtol=1e-4)
        assert column not in found, "what clients say is not the accuracy of the run"
    for column in ("test_loss", "test_accuracy"):
        np.testing.assert_allclose(found[column], expected[column], rtol=1e-4)
    assert found["seconds"].is_monotonic_increasing
    assert math.isnan(found["clients_train_loss"].iloc[-1]), "nobody is given the last model"
    assert record.scheme == "sd-feel"
    assert record.environment["packages"]["torch"]
    assert record.summary["accuracy"] == pytest.approx(expected["test_accuracy"].iloc[-1])
    assert record.summary["interrupted"] is False
    module = parts_one.model()
    module.load_state_dict(load_file(tmp_path / "runs" / "a" / "model.safetensors"))
    for mine, theirs in zip(module.parameters(), simulated.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=2e-6)
    assert edge.metrics.value("sdfeel_measure", kind="test_accuracy") > 0


def test_figures_are_drawn_from_the_run_folders_of_edges(tmp_path: Path) -> None:
    deployment = parts(tmp_path, (1, 2), "parts_two", periods=6)
    edges = run_edges(deployment, tmp_path / "runs")
    app = typer.Typer()
    app.command()(plot)
    folders = [str(tmp_path / "runs" / name) for name in edges]
    result = CliRunner().invoke(app, [*folders, "--out", str(tmp_path / "figure.png")])
    assert result.exit_code == 0, result.exception
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    for edge in edges.values():
        lines = edge.log.recent
        claims = [line for line in lines if line["event"] == "clients-measured"]
        measured = [line for line in lines if line["event"] == "measured"]
        assert any({"clients_train_loss", "clients_train_accuracy"} <= set(line) for line in claims)
        assert any("test_loss" in line for line in measured)


def test_an_evaluation_that_fails_ends_nothing(tmp_path: Path) -> None:
    look = {"holdout": "parts_three:broken"}
    deployment = parts(tmp_path, (1,), "parts_three", periods=4, look=look)
    (edge,) = run_edges(deployment, tmp_path / "runs").values()
    assert edge.done == 4
    failed = [line for line in edge.log.recent if line["event"] == "evaluation-failed"]
    assert len(failed) == 1
    assert "clients_train_loss" in read_run(tmp_path / "runs" / "a").metrics


def test_a_restarted_edge_goes_on_in_its_run_folder(tmp_path: Path) -> None:
    """Rows of periods that were rolled back are gone, time goes on where it was."""
    deployment = parts(tmp_path, (1,), "parts_four", periods=8)
    run_edges(deployment, tmp_path / "runs")
    before = read_run(tmp_path / "runs" / "a").metrics
    store = Store(tmp_path / "state" / "a", {})
    store.acquire()
    done = store.roll_back(7)
    store.release()
    run_edges(deployment, tmp_path / "runs")
    after = read_run(tmp_path / "runs" / "a").metrics
    assert list(after["iteration"]) == list(before["iteration"])
    kept = before["iteration"] <= 2 * done
    assert list(after["seconds"][kept]) == list(before["seconds"][kept])
    assert after["seconds"].is_monotonic_increasing
    np.testing.assert_allclose(after["test_loss"].iloc[-1], before["test_loss"].iloc[-1], rtol=1e-5)


def test_a_launch_leaves_a_run_folder_for_every_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "deployment.toml"
    file.write_text(as_toml(content((1, 1), periods=4)))
    write_safetensors(tmp_path / "initial.safetensors", as_vector(np.zeros(toy.SIZE)), {})
    monkeypatch.setenv("PYTHONPATH", import_path())
    launch(file, out=tmp_path / "runs")
    for name in "ab":
        record = read_run(tmp_path / "runs" / name)
        assert record.summary["iterations"] == 8
        assert record.config["edge"] == name
        assert (tmp_path / "runs" / name / "model.safetensors").exists()


# What clients say.


def results(every: int = 4, periods: int = 10) -> Results:
    def weights(names: Any) -> list[float]:
        return [{"c0": 3, "c1": 1}[n] / sum({"c0": 3, "c1": 1}[m] for m in names) for n in names]

    return Results(2, periods, every, weights, Log("a", None).add, Metrics())


def told(**values: float) -> list[v1.Measure]:
    return [v1.Measure(name=name, value=value) for name, value in values.items()]


def test_measures_are_weighted_like_models_over_those_who_report() -> None:
    found = results()
    found.report("c0", told(batch_loss=1.0, train_loss=4.0))
    found.report("c1", told(batch_loss=5.0))
    found.take(1, 1, ["c0", "c1"])
    assert found.claims == {"c0": {"batch_loss": 1.0, "train_loss": 4.0}, "c1": {"batch_loss": 5.0}}
    assert found.rows[0]["clients_train_loss"] == 4.0, "they were given the model of iteration 0"
    found.report("c0", told(batch_loss=2.0))
    found.report("c1", told(batch_loss=100.0))
    found.take(2, 2, ["c0"])
    assert found.rows[4]["clients_batch_loss"] == pytest.approx((0.75 * 1 + 0.25 * 5 + 2.0) / 2)
    assert not found.last, "the edge itself has measured nothing"
    found.take(3, 3, [])
    assert 6 not in found.rows
    found.take(4, 9, [])
    assert 18 in found.rows, "a jump passes an evaluation"
    found.take(10, 10, [])
    assert 20 in found.rows, "the last one is always there"


@pytest.mark.parametrize(
    "measure",
    [
        v1.Measure(name="train_loss", value=math.nan),
        v1.Measure(name="train_loss", value=math.inf),
        v1.Measure(name="train_loss", value=1e31),
        v1.Measure(name="", value=1.0),
        v1.Measure(name="iteration", value=1.0),
        v1.Measure(name="seconds", value=1.0),
        v1.Measure(name="train_\x1b[2J", value=1.0),
        v1.Measure(name="train_" + "x" * 100, value=1.0),
    ],
)
def test_what_is_no_measure_is_left_out_and_counted(measure: v1.Measure) -> None:
    found = results()
    found.report("c0", [measure, *told(batch_loss=1.0)])
    found.take(1, 1, ["c0"])
    assert found.claims == {"c0": {"batch_loss": 1.0}}
    assert found._metrics.value("sdfeel_refused_total", kind="measure") == 1


def test_clients_that_invent_measures_do_not_fill_the_memory() -> None:
    found = results(periods=10_000)
    for period in range(1, 300):
        found.report("c0", told(**{f"train_x{period}-{n}": 1.0 for n in range(50)}))
        found.take(period, period, ["c0"])
    assert len(found.claims["c0"]) <= MOST
    columns = {name for row in found.rows.values() for name in row}
    assert len(columns) <= KINDS + len(("iteration", "seconds", "participants"))
    assert MOST < KINDS


def test_a_trainer_may_tell_or_not(tmp_path: Path) -> None:
    class Telling(toy.ToyTrainer):
        measures: ClassVar = {"batch_loss": 0.25}

    deployment = deploy(tmp_path, sizes=(2,), periods=3)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all({"c0": Telling(0, deployment.clients[0].samples)})
            await world.finish()
            assert world.edges["a"].results.claims == {"c0": {"batch_loss": 0.25}}
            assert world.events("uploaded", "c0")[0]["batch_loss"] == 0.25

    asyncio.run(run())


# The status.


def test_status_as_json_and_its_exit_status(tmp_path: Path) -> None:
    """0 while all run and after a good end, 1 while one does not answer."""
    deployment = deploy(tmp_path, sizes=(1, 1), periods=9999)
    file = tmp_path / "deployment.toml"
    file.write_text(as_toml(deployment.model_dump(mode="json")))
    app = typer.Typer()
    app.command()(commands.status)

    def call() -> tuple[int, dict[str, Any]]:
        answer = CliRunner().invoke(app, [str(file), "--json", "--timeout", "20"])
        return answer.exit_code, json.loads(answer.output)

    async def run() -> None:
        async with World(deployment) as world:
            trainer = toy.ToyTrainer(0, deployment.clients[0].samples, delay=0.01)
            await world.start_all({"c0": trainer})
            await world.until(lambda: all(edge.done >= 1 for edge in world.edges.values()))
            code, found = await asyncio.to_thread(call)
            assert code == 0
            assert [edge["name"] for edge in found["edges"]] == ["a", "b"]
            for edge in found["edges"]:
                assert {"period", "periods", "phase", "clients", "links"} <= set(edge)
                assert (edge["periods"], edge["accuracy"], edge["problem"]) == (9999, None, "")
            await world.kill("b")
            code, found = await asyncio.to_thread(call)
            assert code == 1
            assert found["edges"][1]["problem"]

    asyncio.run(run())
    for name in "ab":
        store = Store(tmp_path / "state" / name, {})
        store.acquire()
        store.save(EdgeCheckpoint(9999, as_vector(np.zeros(toy.SIZE))))
        store.release()
    code, found = call()
    assert code == 0
    assert [edge["phase"] for edge in found["edges"]] == ["finished", "finished"]


def shown(rows: list[EdgeStatus], width: int = 80) -> str:
    out = StringIO()
    Console(file=out, width=width, force_terminal=False).print(status_table(rows, "trial"))
    return out.getvalue()


def test_the_table_fits_eighty_columns() -> None:
    row = EdgeStatus(
        "edge-north-12",
        period=123_456,
        periods=200_000,
        phase="exchanging",
        clients=tuple(f"c{n}" for n in range(100)),
        expected=150,
        links={f"e{n}": LinkRow(up=True, used=10) for n in range(11)}
        | {"south": LinkRow(used=1204, skipped=33)},
        seconds_per_period=12.345,
        disagreement=0.0123,
        loss=0.123456,
        accuracy=0.98765,
        refused=3,
        warnings=(Concern("certificate", "the certificate ends in 3.0 h"),),
    )
    problem = "UNAVAILABLE: " + "a long sentence of gRPC " * 8 + "Connection refused"
    text = shown([row, EdgeStatus("south", problem=problem)])
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= 80
    (first,) = (line for line in lines if line.startswith("edge-north-12 "))
    for cell in ("123456/200000", "exchanging", "100/150", "11/12", "0.123", "98.8%", "12.35"):
        assert cell in first, "on one line, not cut"
    assert "link to south is down 1204+33" in text
    assert "the certificate ends in 3.0 h" in text
    assert "Connection refused" in text.replace("\n", " "), "the cause stands at the end"


HOSTILE = "\x1b]0;owned\x07\x1b[2J[red]x[/red]\r\n\x00\u202e\x9b31m"


def test_control_characters_of_a_peer_never_reach_the_terminal() -> None:
    reply = v1.StatusReply(
        phase=HOSTILE,
        clients=[HOSTILE],
        links=[v1.LinkStatus(peer=HOSTILE, up=False)],
        warnings=[v1.Warning(kind=HOSTILE, about=HOSTILE, text=HOSTILE * 1000)],
        members=[v1.Member(name=HOSTILE, measures=[v1.Measure(name=HOSTILE, value=math.nan)])],
        measures=[v1.Measure(name=HOSTILE, value=1.0)],
        seconds_per_period=math.nan,
        disagreement=math.inf,
    )
    row = read_row("a", reply)
    text = shown([row, EdgeStatus("b", problem=printable(HOSTILE))])
    bad = {c for c in text if not c.isprintable() and c != "\n"}
    assert not bad
    assert "[red]x[/red]" in text.replace("\n", ""), "no markup is obeyed either"
    assert len(text) < 3000
    json.dumps(row.as_dict(), allow_nan=False)


def test_an_edge_is_ready_only_with_a_client(tmp_path: Path) -> None:
    """A neighbour alone gives it nothing to do."""
    deployment = deploy(tmp_path, sizes=(1, 1), periods=9999)
    (port,) = free_ports(1)
    first = deployment.edges[0].model_copy(update={"metrics": f"127.0.0.1:{port}"})
    deployment = deployment.model_copy(update={"edges": [first, deployment.edges[1]]})

    async def ready() -> int:
        status, _ = await asyncio.to_thread(get, f"http://127.0.0.1:{port}/readyz")
        return status

    async def run() -> None:
        async with World(deployment) as world:
            a = await world.start_edge("a")
            await world.start_edge("b")
            await world.until(lambda: a.links["b"].up)
            assert await ready() == 503
            world.start_client("c0", toy.ToyTrainer(0, deployment.clients[0].samples, delay=0.02))
            await world.until(lambda: bool(a.cluster.sessions))
            assert await ready() == 200

    asyncio.run(run())


def test_watching_ends_when_all_have_finished(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1,), periods=5)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_edge("a")
            watching = asyncio.create_task(follow(deployment, timeout=20.0, every=0.05))
            world.start_client("c0")
            rows = await watching
            assert is_well(rows)
            assert [row.phase for row in rows] == ["finished"]

    asyncio.run(run())


@pytest.mark.parametrize("flags", [[], ["--stay"], ["--leave"]])
def test_an_edge_stays_after_the_end_unless_told_to_leave(tmp_path: Path, flags: list[str]) -> None:
    deployment = deploy(tmp_path, sizes=(1,), periods=2)
    file = tmp_path / "deployment.toml"
    file.write_text(as_toml(deployment.model_dump(mode="json")))
    program = [sys.executable, "-m", "sdfeel", "edge", str(file), "a", *flags]

    async def run() -> None:
        async with World(deployment) as world:
            edge = subprocess.Popen(program, env={**os.environ, "PYTHONPATH": import_path()})
            try:
                world.start_client("c0")
                await world.finish()
                if "--leave" not in flags:
                    (row,) = await ask(deployment, timeout=20.0)
                    assert (row.phase, row.period, row.answers) == ("finished", 2, True)
                    edge.terminate()
                assert edge.wait(60) == 0, "stopping it then is no failure"
            finally:
                edge.kill()
                edge.wait()

    asyncio.run(run())


@pytest.mark.parametrize("field", ["listen", "address", "metrics"])
def test_a_port_that_cannot_be_had_is_named(tmp_path: Path, field: str) -> None:
    deployment = deploy(tmp_path, sizes=(1,), secure=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        edge = deployment.edges[0].model_copy(update={field: place})
        deployment = deployment.model_copy(update={"edges": [edge]})

        async def run() -> None:
            async with World(deployment) as world:
                with pytest.raises(InputError, match=rf"edges\.a\.{field} = '{place}'"):
                    await world.start_edge("a")

        asyncio.run(run())


def test_a_client_that_says_it_is_perfect_changes_nothing_but_its_own_line(tmp_path: Path) -> None:
    """Not the accuracy of its edge, of the run folder, or of what Prometheus is given."""

    class Boasting(toy.ToyTrainer):
        measures: ClassVar = {"test_accuracy": 1.0, "train_accuracy": 1.0, "train_loss": 1e29}

    deployment = deploy(tmp_path, sizes=(2,), periods=9999)

    async def run() -> None:
        async with World(deployment) as world:
            trainer = Boasting(0, deployment.clients[0].samples, delay=0.01)
            await world.start_all({"c0": trainer})
            a = world.edges["a"]
            await world.until(lambda: bool(a.results.claims.get("c0")))
            (row,) = await ask(deployment, timeout=20.0)
            assert (row.loss, row.accuracy, row.measures) == (None, None, {})
            says = {member.name: member.measures.get("test_accuracy") for member in row.members}
            assert says == {"c0": 1.0, "c1": None}
            assert a.metrics.value("sdfeel_measure", kind="test_accuracy") == 0
            labels = {"client": "c0", "kind": "test_accuracy"}
            assert a.metrics.value("sdfeel_client_measure", **labels) == 1
            names = {name for values in a.results.rows.values() for name in values}
            assert not any("accuracy" in name and not name.startswith("clients_") for name in names)

    asyncio.run(run())
