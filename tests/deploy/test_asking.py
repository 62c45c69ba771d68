"""An operator far from the edges gets their models, and nobody else does."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from harness import World, as_toml, deploy, run_to_the_end
from typer.testing import CliRunner

from sdfeel.cli import app
from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.model.files import read_model
from sdfeel.deploy.model.vectors import BLOCK, Vector, as_vector
from sdfeel.deploy.operate.asking import Answer, ask_for_models
from sdfeel.deploy.operate.export import Exported, export
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.trust.provision import Authority
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.grpc_transport import GrpcTransport
from sdfeel.deploy.wire.transport import Call, StreamLost, TurnedAway
from sdfeel.errors import RunError

# Long enough that edges which wait for clients are as they were until the test is over.
WAITING = {"round": 300.0, "exchange": 600.0}


def longer(deployment: Deployment) -> Deployment:
    """The same with more to do, so that edges come back and wait for their clients."""
    table = deployment.model_dump(mode="json")
    table["schedule"]["iterations"] *= 10
    table["deadlines"] |= WAITING
    return parse_deployment(table, deployment.folder)


def elsewhere(world: World, folder: Path) -> Deployment:
    """What an operator has: the file, the first model, its own certificate; no state."""
    given = world.deployment
    shutil.copytree(given.path(given.security.folder), folder / given.security.folder)
    shutil.copy(given.path(given.model.initial), folder / given.model.initial)
    return given.model_copy(update={"folder": folder})


def trained(folder: Path, size: int = toy.SIZE) -> tuple[Deployment, np.ndarray]:
    """Two edges after three periods, and the weighted mean of their models."""
    deployment = deploy(folder, size, sizes=(1, 3), periods=3, averager="metropolis")
    models = np.stack(run_to_the_end(deployment, size=size)).astype(float)
    assert not np.array_equal(models[0], models[1])
    shares = [Topology(deployment).at(0).share(name) for name in "ab"]
    return longer(deployment), np.array(shares) @ models


def exported(deployment: Deployment, folder: Path, act: Callable[[World], Any]) -> Exported:
    """By an operator elsewhere, while the edges wait for their clients."""
    (folder / "operator").mkdir()

    async def run() -> Exported:
        async with World(deployment) as world:
            for name in "ab":
                await world.start_edge(name)
            far = elsewhere(world, folder / "operator")
            await act(world)
            return await asyncio.to_thread(export, far, folder / "m.safetensors", timeout=20.0)

    return asyncio.run(run())


async def nothing(_world: World) -> None:
    return


@pytest.mark.parametrize("size", [toy.SIZE, BLOCK, BLOCK + 1, 2 * BLOCK + 1])
def test_an_operator_elsewhere_gets_the_weighted_mean(tmp_path: Path, size: int) -> None:
    deployment, mean = trained(tmp_path, size)
    made = exported(deployment, tmp_path, nothing)
    assert made.periods == {"a": 3, "b": 3}
    np.testing.assert_allclose(made.model.array(), mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(read_model(made.path).vector.array(), made.model.array())


def test_an_edge_notes_whose_certificate_took_its_model(tmp_path: Path) -> None:
    """As in the list of what was issued, so that one of several operators can be told."""
    deployment, _ = trained(tmp_path)
    worlds: list[World] = []

    async def keep(world: World) -> None:
        worlds.append(world)

    exported(deployment, tmp_path, keep)
    (line,) = [line for line in worlds[0].past if line["event"] == "exported"][:1]
    issued = (tmp_path / "certificates" / "issued.jsonl").read_text().splitlines()
    (last,) = [row for row in map(json.loads, issued) if row["role"] == "operator"]
    assert (line["by"], line["certificate"]) == ("operator/operator", last["serial"])
    assert line["period"] == 3


def test_an_edge_that_has_ended_is_read_from_its_folder_here(tmp_path: Path) -> None:
    deployment, mean = trained(tmp_path)

    async def end_b(world: World) -> None:
        await world.kill("b")
        shutil.copytree(tmp_path / "state" / "b", tmp_path / "operator" / "state" / "b")

    made = exported(deployment, tmp_path, end_b)
    np.testing.assert_allclose(made.model.array(), mean, rtol=1e-6)


def test_an_edge_that_is_down_is_left_out_and_named(tmp_path: Path) -> None:
    """Neither an answer nor a folder: the mean is that of the others, and says so."""
    deployment, _ = trained(tmp_path)

    async def end_b(world: World) -> None:
        await world.kill("b")

    made = exported(deployment, tmp_path, end_b)
    assert (made.periods, made.weights, made.origins) == ({"a": 3}, {"a": 1.0}, {"a": "edge"})
    assert re.match("has no checkpoint in .* and does not answer: ", made.missing["b"])
    alone = export(deployment, tmp_path / "a.safetensors", ["a"])
    np.testing.assert_array_equal(made.model.array(), alone.model.array())
    notes = read_model(made.path).notes
    assert (json.loads(notes["missing"]), json.loads(notes["weights"])) == (["b"], {"a": 1.0})


def test_the_command_says_what_the_mean_is_of(tmp_path: Path) -> None:
    """One edge from its folder here, one left out; the line of what was done is there, too."""
    deployment, _ = trained(tmp_path)
    file, out = tmp_path / "d.toml", tmp_path / "m.safetensors"
    file.write_text(as_toml(deployment.model_dump(mode="json")))
    shutil.rmtree(tmp_path / "state" / "b")
    words = ["export", str(file), "--out", str(out), "--timeout", "1"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.exception
    assert "note: without edge b: it has no checkpoint" in result.stderr
    assert "100.0 % a after period 3, from its checkpoint" in result.stderr
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert (found["periods"], list(found["missing"])) == ({"a": 3}, ["b"])
    named = CliRunner().invoke(app, [*words, "--edge", "a", "--edge", "b"])
    assert isinstance(named.exception, RunError), "who was named is wanted"
    lines = map(json.loads, (tmp_path / "audit.log").read_text().splitlines())
    assert [(line["action"], line["periods"]) for line in lines] == [("exported", {"a": 3})] * 2


def test_nobody_at_all_is_an_error(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1, 1), periods=3)
    with pytest.raises(RunError, match=r"edge a has no checkpoint .*\nedge b has no checkpoint"):
        export(deployment, tmp_path / "m.safetensors", timeout=1.0)
    assert not (tmp_path / "m.safetensors").exists()


def test_a_revoked_edge_gives_no_model(tmp_path: Path) -> None:
    deployment, _ = trained(tmp_path)

    async def revoke(_world: World) -> None:
        folder = deployment.path(deployment.security.folder)
        Authority(folder).revoke([("edge", "b")])
        shutil.copy(folder / "revoked.pem", tmp_path / "operator" / folder.name)

    made = exported(deployment, tmp_path, revoke)
    assert list(made.periods) == ["a"]
    assert "revoked" in made.missing["b"]


@pytest.mark.parametrize(("role", "name"), [("client", "c0"), ("edge", "b")])
def test_nobody_but_an_operator_is_given_a_model(tmp_path: Path, role: str, name: str) -> None:
    deployment = deploy(tmp_path, sizes=(1, 1), periods=9999)

    async def run() -> None:
        async with World(deployment) as world:
            a = await world.start_edge("a")
            door = GrpcTransport(deployment, Credentials(deployment, role, name))
            stream = await door.dial("a", Call.MODEL)
            with pytest.raises(TurnedAway, match=f"{role}/{name} may not make this call"):
                await stream.read()
            stream.close()
            await stream.wait_closed()
            assert a.metrics.value("sdfeel_refused_total", kind="role") == 1

    asyncio.run(run())


# What an edge may answer that is no model.

SIZE = BLOCK + 3


class Script:
    """A stream on which these things are said, whatever is asked."""

    def __init__(self, words: list[Any]) -> None:
        self.words = words

    async def read(self) -> Any:
        if not self.words:
            await asyncio.Event().wait()
        word = self.words.pop(0)
        if isinstance(word, Exception):
            raise word
        return word

    async def write(self, _message: Any) -> None: ...

    def close(self, _reason: str = "") -> None: ...

    async def wait_closed(self) -> None: ...

    async def dial(self, _edge: str, _call: Call) -> Script:
        return self


def said(model: Vector, period: int = 2) -> list[Any]:
    parts = [v1.LinkMessage(chunk=chunk) for chunk in frames.chunks(model)]
    return [v1.LinkMessage(model=frames.header(model, period)), *parts]


def values(value: float, size: int = SIZE) -> Vector:
    return as_vector(np.full(size, value, dtype=np.float32))


GOOD = said(values(2.0))
CASES: dict[str, tuple[list[Any], str]] = {
    "silence": ([], "no answer in"),
    "no-hello": (GOOD, "no hello"),
    "ends": ([None], "no hello"),
    "lost": ([StreamLost("gone\x1b[2J" + "x" * 5000)], r"gone\?\[2Jx+\.\.\.$"),
    "huge": (["hello", *said(values(1e30))], "a value of 1e"),
    "nan": (["hello", *said(values(np.nan))], "NaN or infinity"),
    "other-size": (["hello", *said(values(1.0, SIZE + 1))], "expected 32771"),
    "beyond-the-end": (["hello", *said(values(1.0), 10**6)], "`iterations` may be larger"),
    "half-a-model": (["hello", *GOOD[:2], None], "no chunk"),
    "half-and-silence": (["hello", *GOOD[:2]], "no answer in"),
    "chunks-of-another": (["hello", *GOOD[:2], GOOD[1]], "chunk at 0"),
}


def ask_script(folder: Path, words: list[Any], timeout: float = 60.0) -> Answer:
    deployment = deploy(folder, sizes=(1,), periods=3, secure=False, size=SIZE)
    first = read_model(deployment.path(deployment.model.initial))
    topology = Topology(deployment)

    async def run() -> Answer:
        async with World(deployment) as world:
            hello = v1.LinkMessage(hello=(await world.start_edge("a")).replies.hello())
            door: Any = Script([hello if word == "hello" else word for word in words])
            return (await ask_for_models(topology, first, ["a"], timeout, door))["a"]

    return asyncio.run(run())


@pytest.mark.parametrize("name", CASES)
def test_what_is_no_model_is_refused_and_named(tmp_path: Path, name: str) -> None:
    words, problem = CASES[name]
    answer = ask_script(tmp_path, list(words), 0.05 if "silence" in name else 60.0)
    assert answer.model is None
    with pytest.raises(RunError, match=problem):
        raise RunError(answer.problem)


def test_what_is_a_model_is_taken(tmp_path: Path) -> None:
    answer = ask_script(tmp_path, ["hello", *GOOD])
    assert answer.model is not None
    assert (answer.period, answer.model.sha256) == (2, values(2.0).sha256)


def test_without_a_certificate_nobody_is_asked_and_what_is_here_is_read(tmp_path: Path) -> None:
    deployment, mean = trained(tmp_path)
    shutil.rmtree(deployment.path(deployment.security.folder) / "operator")
    made = export(deployment, tmp_path / "m.safetensors")
    np.testing.assert_allclose(made.model.array(), mean, rtol=1e-6)
