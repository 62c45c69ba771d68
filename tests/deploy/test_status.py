"""What `sdfeel status` tells apart, how it ends, and the schema of what it prints."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import toy
from harness import World, as_toml, deploy, free_ports
from rich.console import Console
from typer.testing import CliRunner

from sdfeel import __version__
from sdfeel.cli import app
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.files import read_model
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.operate.edge_status import PHASES, EdgeStatus
from sdfeel.deploy.operate.status import (
    ask,
    exit_status,
    is_well,
    schema,
    status_table,
)
from sdfeel.deploy.protocol import PROTOCOL

ROOT = Path(__file__).parents[2]
RUNNING = EdgeStatus("a", phase="collecting", period=3, periods=9, answers=True)


def row(phase: str, problem: str = "") -> EdgeStatus:
    return EdgeStatus("b", phase=phase, problem=problem, expected=4, answers=not problem)


@pytest.mark.parametrize(
    ("other", "status"),
    [
        (row("exchanging"), 0),
        (row("finished"), 0),
        (row("paused"), 3),
        (row("no-clients"), 3),
        (row("no-answer", "UNAVAILABLE: "), 1),
    ],
)
def test_the_exit_status_says_what_to_do(other: EdgeStatus, status: int) -> None:
    assert exit_status([RUNNING, other]) == status
    assert is_well([RUNNING, other]) == (status == 0)
    dead = row("no-answer", "UNAVAILABLE: ")
    assert exit_status([other, dead]) == 1, "an edge that does not answer comes first"


def shown(rows: list[EdgeStatus]) -> str:
    out = StringIO()
    Console(file=out, width=80).print(status_table(rows, "trial"))
    return out.getvalue()


def test_the_table_says_what_an_edge_waits_for() -> None:
    assert "none of its 4 clients is connected" in shown([row("no-clients")])
    assert "no-clients" in shown([row("no-clients")])


def checkpoint(deployment: Deployment, edge: str, period: int) -> None:
    first = read_model(deployment.path(deployment.model.initial))
    store = Store.of(deployment, edge, deployment.folder / "state" / edge, first)
    store.acquire()
    store.save(EdgeCheckpoint(period, as_vector(np.zeros(toy.SIZE))))
    store.release()


def test_finished_is_told_from_dead(tmp_path: Path) -> None:
    """Nobody answers: of one edge the last checkpoint lies here, of one an earlier one."""
    deployment = deploy(tmp_path, sizes=(1, 1, 1), periods=9)
    checkpoint(deployment, "a", 9)
    checkpoint(deployment, "b", 4)
    rows = asyncio.run(ask(deployment, timeout=5.0))
    found = [(row.name, row.phase, row.period, row.answers, bool(row.problem)) for row in rows]
    assert found == [
        ("a", "finished", 9, False, False),
        ("b", "no-answer", 4, False, True),
        ("c", "no-answer", 0, False, True),
    ]
    text = shown(rows)
    assert "its checkpoints here reach period 4" in text.replace("\n", " ")
    assert re.search(r"^b +4/9 +no answer", text, re.MULTILINE)
    assert exit_status(rows) == 1


def test_an_edge_that_has_finished_and_stays_answers(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1,), periods=2)

    async def run() -> list[EdgeStatus]:
        async with World(deployment) as world:
            await world.start_all()
            await world.finish()
            return await ask(deployment, timeout=20.0)

    (found,) = asyncio.run(run())
    assert (found.phase, found.answers, found.problem) == ("finished", True, "")
    assert "0/1" in shown([found]), "what it answers is shown"


def test_following_by_its_old_name_still_works(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1,), periods=2)
    checkpoint(deployment, "a", 2)
    file = tmp_path / "deployment.toml"
    file.write_text(as_toml(deployment.model_dump(mode="json")))
    words = ["status", str(file), "--timeout", "1"]
    for flag, note in (("--follow", ""), ("--watch", "--watch is --follow now")):
        result = CliRunner().invoke(app, [*words, flag])
        assert (result.exit_code, note in result.stderr) == (0, True)
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    for flag, note in (("--states", ""), ("--state", "--state is --states now")):
        result = CliRunner().invoke(app, [*words, flag, str(tmp_path / "elsewhere")])
        assert (result.exit_code, note in result.stderr) == (0, True)


# The schema.


def test_the_schema_in_the_documentation_is_that_of_the_code() -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "status_schema.py", "--check"], check=True)


def test_every_field_and_phase_has_a_sentence() -> None:
    edge = schema()["$defs"]["EdgeStatus"]
    assert list(edge["properties"]) == [field.name for field in fields(EdgeStatus)]
    assert set(edge["required"]) == set(edge["properties"])
    assert all(one.get("description") for one in edge["properties"].values())
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    for phase, sentence in PHASES.items():
        assert f"| `{phase}` | {sentence} |" in page


KINDS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def check(value: Any, kind: dict[str, Any], top: dict[str, Any]) -> None:
    """As much of JSON Schema as ours uses."""
    if "$ref" in kind:
        kind = top["$defs"][kind["$ref"].rpartition("/")[2]]
    if "type" in kind:
        assert isinstance(value, KINDS[kind["type"]]), (value, kind)
    elif "anyOf" in kind:
        assert any(isinstance(value, KINDS[one["type"]]) for one in kind["anyOf"]), (value, kind)
    if isinstance(value, dict):
        assert set(kind.get("required", ())) <= set(value)
        for key, inner in value.items():
            check(inner, kind.get("properties", {}).get(key) or kind["additionalProperties"], top)
    for inner in value if isinstance(value, list) else ():
        check(inner, kind["items"], top)


def test_what_is_printed_is_as_the_schema_says(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1, 1), periods=9999)
    file = tmp_path / "deployment.toml"
    file.write_text(as_toml(deployment.model_dump(mode="json")))

    def call() -> dict[str, Any]:
        answer = CliRunner().invoke(app, ["status", str(file), "--json", "--timeout", "20"])
        printed: dict[str, Any] = json.loads(answer.stdout)
        return printed

    async def run() -> dict[str, Any]:
        async with World(deployment) as world:
            await world.start_all()
            await world.until(lambda: world.edges["a"].done >= 2)
            return await asyncio.to_thread(call)

    check(asyncio.run(run()), schema(), schema())
    check(call(), schema(), schema())


def test_metrics_name_version_length_and_memory(tmp_path: Path) -> None:
    """Also right after a restart, before there is a period."""
    deployment = deploy(tmp_path, sizes=(1,), periods=9)
    checkpoint(deployment, "a", 4)
    edge = deployment.edges[0].model_copy(update={"metrics": f"127.0.0.1:{free_ports(1)[0]}"})
    deployment = deployment.model_copy(update={"edges": [edge]})

    async def run() -> None:
        async with World(deployment) as world:
            a = await world.start_edge("a")
            url = f"http://{edge.metrics}/metrics"
            answer = await asyncio.to_thread(lambda: urlopen(url, timeout=10).read().decode())
            assert "\nsdfeel_period 4.0\n" in answer
            assert "\nsdfeel_periods 9.0\n" in answer
            assert (
                f'sdfeel_build_info{{protocol="{PROTOCOL}",version="{__version__}"}} 1.0' in answer
            )
            assert a.metrics.value("process_resident_memory_bytes") > 2**20
            assert a.metrics.value("process_open_fds") > 3

    asyncio.run(run())
