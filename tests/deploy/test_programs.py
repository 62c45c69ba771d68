"""The programs as users start them: provision, launch, status, and what they say to mistakes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import toy
import typer
from harness import as_toml, content, deploy, import_path
from typer.testing import CliRunner

from deployment.round_times import draw_times, round_times
from sdfeel.cli import deploy as commands
from sdfeel.cli.provision import app as provision_app
from sdfeel.deploy.client.client import ClientProgram
from sdfeel.deploy.model.store import read_safetensors, write_safetensors
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.operate.launch import Kill, Launch, final_model, launch, prepare, run_nodes
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.wire.transport import TurnedAway
from sdfeel.errors import InputError, RunError
from sdfeel.importing import imported


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.add_typer(provision_app, name="provision")
    for command in (commands.status, commands.edge, commands.client):
        made.command()(command)
    return made


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment of two edges and three clients that a process can import the toy of."""
    path = tmp_path / "deployment.toml"
    path.write_text(as_toml(content((1, 2), periods=4)))
    write_safetensors(tmp_path / "initial.safetensors", as_vector(np.zeros(toy.SIZE)), {})
    monkeypatch.setenv("PYTHONPATH", import_path())
    return path


def test_launch_runs_everything_to_the_end(file: Path) -> None:
    seen = []
    nodes = launch(file, on_status=seen.append)
    assert not nodes.failed
    mean, path = final_model(nodes.deployment)
    assert np.array_equal(read_safetensors(path)[0].array(), mean.array())
    assert np.abs(mean.array()).max() > 0
    lines = {name: nodes.lines(name) for name in nodes.processes}
    assert sum(line["event"] == "period" for line in lines["a"]) == 4
    topology = Topology(nodes.deployment)
    times = round_times(topology, lines["a"], {c: lines[c] for c in topology.at(0).clients}, 0.001)
    assert len(times.measured) == 3
    assert times.predicted > times.computing >= 0
    draw_times(times, file.parent / "times.png")
    assert (file.parent / "times.png").stat().st_size > 0
    assert seen
    (line,) = map(json.loads, (file.parent / "audit.log").read_text().splitlines())
    assert (line["action"], len(line["nodes"])) == ("authority-created", 6)


def test_a_node_that_fails_is_named(file: Path) -> None:
    file.write_text(file.read_text().replace("toy:trainer", "toy:missing"))
    with pytest.raises(RunError, match=r"c\d failed; see .*err"):
        launch(file)


def test_the_others_go_on_without_a_node_that_dies(file: Path) -> None:
    """One client cannot be started; its name, its status and its log are told while others work."""
    parts = "from toy import *\ndef trainer(deployment, client):\n"
    parts += "    if client == 'c2':\n        raise SystemExit('no data here')\n"
    parts += "    import toy\n    return toy.trainer(deployment, client)\n"
    (file.parent / "but_one.py").write_text(parts)
    table = content((2, 2), periods=12, deadlines={"round": 2.0, "exchange": 4.0})
    file.write_text(as_toml(table | {"local": {"trainer": "but_one:trainer"}}))
    nodes = run_nodes(file)
    assert nodes.failed == ["c2"]
    (note,) = nodes.notes
    log = file.parent / "logs" / "c2.err"
    assert f"c2 died (status 1), the others go on; see {log} (no data here)" in note
    for edge in "ab":
        assert nodes.lines(edge)[-1]["event"] == "stopped"
        assert nodes.lines(edge)[-1]["period"] == 12
    with pytest.raises(RunError, match=r"c2 failed; see .*c2\.err"):
        nodes.check()


def test_a_node_is_killed_at_its_second_and_started_again(file: Path) -> None:
    table = content((1, 2), periods=60)
    table["local"]["options"] = {"delay": 0.05}
    file.write_text(as_toml(table))
    nodes = run_nodes(file, kills=["b@1", "c0@1.5"], restart=True)
    assert not nodes.problem, nodes.problem
    said = [note.partition(": ")[2] for note in nodes.notes]
    assert sorted(said) == sorted(
        f"{name} {what}" for name in ("b", "c0") for what in ("killed, as asked", "started again")
    )
    assert nodes.lines("b")[-1]["period"] == 60


def test_an_edge_that_is_killed_goes_on_from_its_checkpoint(file: Path) -> None:
    table = content((1, 2), periods=60)
    table["local"]["options"] = {"delay": 0.05}
    file.write_text(as_toml(table))
    with Launch(file, prepare(file), file.parent / "logs") as nodes:
        while not any(line["event"] == "period" for line in nodes.lines("b")):
            time.sleep(0.1)
        asyncio.run(nodes.kill(Kill("b", 0.0), restart=True))
        while not nodes.is_over:
            time.sleep(0.1)
        assert not nodes.problem, nodes.problem
        lines = nodes.lines("b")
        assert any(line["event"] == "resumed" for line in lines)
        assert lines[-1]["period"] == 60


def test_a_launch_without_clients_ends(file: Path) -> None:
    """Edges would wait for them for ever."""
    file.write_text(as_toml(content((1, 1), periods=100_000)))
    nodes = run_nodes(file, kills=["c0@4", "c1@4"])
    assert not nodes.failed, "it was asked for"
    assert nodes.problem == "no client is left: stopped before the end"


def test_a_client_whose_edge_was_killed_does_not_keep_a_launch_for_ever(file: Path) -> None:
    """It has no fallback and would look for its edge to the end of time; b has finished."""
    table = content((1, 1), periods=20, deadlines={"round": 2.0, "exchange": 3.0})
    file.write_text(as_toml(table))
    nodes = run_nodes(file, kills=["a@0.5"])
    assert not nodes.problem, nodes.problem
    assert nodes.lines("b")[-1]["period"] == 20
    assert nodes.processes["c0"].poll() == 130


@pytest.mark.parametrize("kill", ["z@3", "a", "a@", "a@x", "a@-1", "a@nan", "@3"])
def test_who_is_to_be_killed_and_when_is_checked_first(file: Path, kill: str) -> None:
    with pytest.raises(InputError, match="--kill"):
        run_nodes(file, kills=[kill])
    assert not (file.parent / "certificates").exists(), "before anything is made"


def nodes_of(file: Path) -> list[str]:
    """Command lines of processes that were started with this file."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(line.read_bytes().replace(b"\0", b" ").decode())
    return [words for words in found if str(file) in words and "operate.programs" in words]


def test_a_launch_that_is_terminated_leaves_no_node_behind(file: Path) -> None:
    file.write_text(as_toml(content((1, 2), periods=100_000)))
    command = [sys.executable, "-m", "sdfeel", "launch", str(file)]
    around = {**os.environ, "PYTHONPATH": import_path()}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=around) as launched:
        while len(nodes_of(file)) < 4:
            assert launched.poll() is None
        launched.terminate()
        assert launched.wait(timeout=60) == 143
    assert not nodes_of(file)


def test_provision_and_status_by_command(app: typer.Typer, file: Path) -> None:
    run = CliRunner().invoke
    assert run(app, ["provision", "init", str(file), "--hours", "1"]).exit_code == 0
    assert (file.parent / "certificates" / "edge" / "a.pem").exists()
    renewed = run(app, ["provision", "node", str(file), "a"])
    assert "1 certificates" in renewed.output
    revoked = run(app, ["provision", "revoke", str(file), "client/c1"])
    assert "revoked client/c1" in revoked.output
    answer = run(app, ["status", str(file), "--json", "--timeout", "1"])
    assert answer.exit_code == 1, "nobody is there"
    edges = json.loads(answer.output)["edges"]
    assert [row["name"] for row in edges] == ["a", "b"]
    assert "UNAVAILABLE" in edges[0]["problem"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["edge", "{file}", "z"], "edge = 'z'"),
        (["client", "{file}", "c0", "--set", "trainer=toy:nothing"], "local.trainer"),
        (["client", "{file}", "c0", "--set", "local.trainer=nowhere:x"], "local.trainer"),
        (["client", "{file}", "c0", "--set", "trainr=toy:trainer"], "did you mean 'trainer'"),
        (["client", "{file}", "c0", "--set", "schedule.tau1=3"], "local.schedule"),
        (["client", "{file}", "c0", "--set", "lr=fast"], "local.lr"),
        (["client", "{file}", "c0", "--model", "a:b"], "is `--set model=a:b` now"),
        (["client", "{file}", "c0", "--data", "a:b"], "is `--set data=a:b` now"),
        (["client", "{file}", "c0", "--trainer", "a:b"], "is `--set trainer=a:b` now"),
        (["client", "{file}", "c0", "--flower", "a:b"], "is `--set trainer=flower:a:b` now"),
        (["provision", "revoke", "{file}", "c1"], "ROLE/NAME"),
        (["provision", "node", "{file}", "a"], "`sdfeel provision init"),
        (["provision", "renew", "{file}"], "`sdfeel provision init"),
        (["provision", "protect", "{file}"], "`sdfeel provision init"),
        (["status", "{file}.missing"], "deployment file"),
    ],
)
def test_mistakes_are_named(app: typer.Typer, file: Path, arguments: list[str], named: str) -> None:
    os.environ.pop("TOY_DELAY", None)
    result = CliRunner().invoke(app, [part.format(file=file) for part in arguments])
    assert isinstance(result.exception, InputError)
    assert named in str(result.exception)


def test_import_paths_name_functions() -> None:
    assert imported("x", "toy:step") is toy.step
    with pytest.raises(InputError, match="must be a function"):
        imported("x", "toy:SIZE")


def test_a_client_that_is_told_to_stop_while_it_is_refused_stops(tmp_path: Path) -> None:
    """The signal and the edge's answer in one turn of the event loop."""
    deployment = deploy(tmp_path, sizes=(1,), secure=False)
    tasks = []

    class Dialled:
        async def write(self, _message: object) -> None:
            await asyncio.sleep(0)

        async def read(self) -> object:
            tasks[0].cancel()
            raise TurnedAway("refused")

        def close(self) -> None:
            pass

        async def wait_closed(self) -> None:
            await asyncio.sleep(0)

    class Door:
        async def dial(self, _edge: str, _call: object) -> Dialled:
            return Dialled()

    async def run() -> None:
        samples = deployment.client("c0").samples
        trainer = toy.ToyTrainer(0, samples)
        client = ClientProgram(deployment, "c0", trainer, transport=Door())
        tasks.append(asyncio.create_task(client.run()))
        await asyncio.wait(tasks, timeout=5)
        assert tasks[0].cancelled()

    asyncio.run(run())
