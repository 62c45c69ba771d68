"""The documentation's own steps, as they stand there."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from harness import free_ports, import_path
from safetensors.torch import load_file

from sdfeel.deploy.config import load_deployment
from sdfeel.deploy.operate.audit import ACTIONS
from sdfeel.deploy.operate.status import ask, exit_status
from sdfeel.deploy.operate.watching import follow
from sdfeel.records.reading import read_run

PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"
STEPS = PAGE.read_text(encoding="utf-8").partition("## Three machines, step by step")[2]


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", STEPS, re.DOTALL)
    assert found
    return found[1]


def commands() -> list[list[str]]:
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", STEPS, re.DOTALL)).splitlines()
    return [shlex.split(line) for line in lines if line.startswith("sdfeel ")]


@pytest.mark.slow
def test_three_machines_step_by_step(tmp_path: Path) -> None:
    """On this machine's loopback and for fewer iterations; else to the letter."""
    text = block("toml").replace("iterations = 4000", "iterations = 200")
    ports = dict(zip(("north", "south", "west"), free_ports(3), strict=True))
    for name, port in ports.items():
        place = f'address = "127.0.0.1:{port}"\nlisten = "127.0.0.1:{port}"'
        old = f'address = "{name}.example.org:7001"\nlisten = "0.0.0.0:7001"'
        assert old in text
        text = text.replace(old, place)
    text = text.replace("127.0.0.1:9101", f"127.0.0.1:{free_ports(1)[0]}")
    (tmp_path / "deployment.toml").write_text(text)
    (tmp_path / "my_project.py").write_text(block("python"))
    first, second, edge, client, export = commands()
    environment = {**os.environ, "PYTHONPATH": import_path()}

    def start(command: list[str]) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", *command]
        log = (tmp_path / "log").open("ab")
        with log:
            return subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=log, stderr=log)

    for command in (first, second):
        assert start(command).wait(120) == 0, (tmp_path / "log").read_text()
    edges = [start([part.replace("north", name) for part in edge]) for name in ports]
    clients = [start([part.replace("phone-1", f"phone-{n}") for part in client]) for n in (1, 2, 3)]
    deployment = load_deployment(tmp_path / "deployment.toml")
    try:
        for node in clients:
            assert node.wait(250) == 0, (tmp_path / "log").read_text()[-3000:]
        rows = asyncio.run(follow(deployment, timeout=5.0, every=0.2))
        assert all(row.answers for row in rows), "edges stay"
        assert exit_status(rows) == 0
        assert start(export).wait(120) == 0
        for node in edges:
            node.terminate()
            assert node.wait(60) == 0, "stopped after a good end"
    finally:
        for node in [*edges, *clients]:
            node.kill()
            node.wait()
    rows = asyncio.run(ask(deployment, timeout=5.0))
    assert exit_status(rows) == 0, "a good end is no crash"
    sys.path.insert(0, str(tmp_path))
    try:
        import my_project

        module = my_project.make_model()
        module.load_state_dict(load_file(tmp_path / "model.safetensors"))
    finally:
        sys.path.remove(str(tmp_path))
    inputs, targets = my_project.open_holdout("north").tensors
    with torch.no_grad():
        accuracy = float((module(inputs).argmax(1) == targets).float().mean())
    record = read_run(tmp_path / "runs" / "north")
    assert record.metrics["test_accuracy"].iloc[-1] > record.metrics["test_accuracy"].iloc[0]
    assert accuracy > 0.3


def test_every_action_of_the_audit_log_is_explained() -> None:
    text = (PAGE.parent / "failures.md").read_text(encoding="utf-8")
    assert not [a for a, sentence in ACTIONS.items() if f"| `{a}` | {sentence} |" not in text]
