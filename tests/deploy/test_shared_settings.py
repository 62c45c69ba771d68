"""What must be the same at two nodes is named field by field; everything else may differ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from harness import World, content, deploy

from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.model.store import write_safetensors
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.protocol import PROTOCOL, v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.shared_settings import SharedSettings
from sdfeel.errors import InputError

FIRST = b"m" * 32


def of_edges(table: dict[str, Any], first: bytes = FIRST) -> SharedSettings:
    return SharedSettings.of_edges(Topology(parse_deployment(table, Path())), first)


def hello(table: dict[str, Any], first: bytes = FIRST, **fields: Any) -> v1.Hello:
    digest = parse_deployment(table, Path()).digest
    settings = of_edges(table, first).tell()
    given = {"protocol": PROTOCOL, "deployment": digest, "settings": settings} | fields
    return v1.Hello(**given)


Change = Callable[[dict[str, Any]], object]

MAY_DIFFER: dict[str, Change] = {
    "longer training": lambda t: t["schedule"].update(iterations=1000),
    "another client": lambda t: t["clients"].append({"name": "new", "edge": "a", "samples": 5}),
    "a client that moved": lambda t: t["clients"][0].update(edge="b"),
    "deadlines": lambda t: t["deadlines"].update(round=1.0, exchange=2.0),
    "addresses": lambda t: t["edges"][0].update(address="elsewhere:1", listen="0.0.0.0:1"),
    "averaging inside a cluster": lambda t: t.update(averaging={"rule": "median"}),
    "the seed of clients": lambda t: t.update(seed=4),
    "what travels between clients and edges": lambda t: t.update(codecs={"up": "int8"}),
    "links in another order": lambda t: t.update(graph={"links": [("b", "a"), ("c", "a")]}),
}
MUST_AGREE: dict[str, Change] = {
    "schedule.tau1": lambda t: t["schedule"].update(tau1=1),
    "schedule.tau2": lambda t: t["schedule"].update(tau2=2),
    "schedule.alpha": lambda t: t["schedule"].update(alpha=3),
    "schedule.averager": lambda t: t["schedule"].update(averager="metropolis"),
    "graph": lambda t: t.update(graph={"links": [("a", "b"), ("b", "c")]}),
    "edges": lambda t: t["edges"].reverse(),
    "server_optimizer": lambda t: t.update(server_optimizer={"name": "fedadam"}),
    "correction": lambda t: t.update(correction={"name": "clients"}),
}


def table() -> dict[str, Any]:
    return content((2, 1, 1), tau1=2, periods=6, links=[("a", "b"), ("a", "c")])


@pytest.mark.parametrize("name", MAY_DIFFER)
def test_what_may_differ_between_edges(name: str) -> None:
    changed = table()
    MAY_DIFFER[name](changed)
    of_edges(table()).check(hello(changed))
    of_edges(changed).check(hello(table()))


@pytest.mark.parametrize("name", MUST_AGREE)
def test_what_must_agree_is_named_with_both_values(name: str) -> None:
    changed = table()
    MUST_AGREE[name](changed)
    for mine, theirs in ((table(), changed), (changed, table())):
        with pytest.raises(Refused, match=rf"^{name}: '.*' here, '.*' there$") as refusal:
            of_edges(mine).check(hello(theirs))
        assert refusal.value.kind == "deployment"


def test_the_first_model_the_name_and_the_protocol_must_agree() -> None:
    with pytest.raises(Refused, match=r"model\.initial"):
        of_edges(table()).check(hello(table(), b"n" * 32))
    with pytest.raises(Refused, match="this is 'test'"):
        of_edges(table()).check(hello(table() | {"name": "other"}))
    with pytest.raises(Refused, match=f"version {PROTOCOL + 1}"):
        of_edges(table()).check(hello(table(), protocol=PROTOCOL + 1))


def test_a_field_that_only_one_program_knows_must_have_its_default() -> None:
    newer = hello(table())
    newer.settings.append(v1.Setting(name="schedule.pace", value="synchronous", is_default=True))
    of_edges(table()).check(newer)
    newer.settings[-1].is_default = False
    with pytest.raises(Refused, match=r"schedule\.pace"):
        of_edges(table()).check(newer)
    older = hello(table())
    kept = [setting for setting in older.settings if setting.name != "schedule.alpha"]
    del older.settings[:]
    older.settings.extend(kept)
    of_edges(table()).check(older)


def said_by_client(table: dict[str, Any]) -> v1.Hello:
    theirs = parse_deployment(table, Path())
    settings = SharedSettings.of_clients(theirs).tell()
    return v1.Hello(protocol=PROTOCOL, deployment=theirs.digest, settings=settings)


def test_clients_and_edges_need_the_same_seed_steps_and_codecs() -> None:
    """With another tau1 a client would refuse every task, and its edge would wait for it."""
    mine = SharedSettings.of_clients(parse_deployment(table() | {"seed": 1}, Path()))
    with pytest.raises(Refused, match="seed: '1' here, '2' there"):
        mine.check(said_by_client(table() | {"seed": 2}))
    longer = content((2, 1, 1), tau1=3, periods=6) | {"seed": 1}
    with pytest.raises(Refused, match=r"schedule\.tau1: '2' here, '3' there"):
        mine.check(said_by_client(longer))
    for way in ("up", "down"):
        packed = table() | {"seed": 1, "codecs": {way: "int8"}}
        with pytest.raises(Refused, match=rf"codecs\.{way}: 'float32' here, 'int8' there"):
            mine.check(said_by_client(packed))
    corrected = table() | {"seed": 1, "correction": {"name": "clients"}}
    with pytest.raises(Refused, match=r"correction: 'none' here, 'Correction\(.*' there"):
        mine.check(said_by_client(corrected))
    theirs = SharedSettings.of_clients(parse_deployment(corrected, Path()))
    with pytest.raises(Refused, match=r"^correction: .* here, "):  # from its rate follows H
        theirs.check(said_by_client(corrected | {"local": {"lr": 0.3}}))
    other = table() | {"seed": 1}
    other["schedule"].update(tau2=5, alpha=2, iterations=1000)
    mine.check(said_by_client(other))


def test_a_long_value_is_compared_as_a_whole_and_told_in_short() -> None:
    many = content((1,) * 26)
    other = content((1,) * 26)
    for made in (many, other):
        for n, edge in enumerate(made["edges"]):
            made["clients"][n]["edge"] = edge["name"] = f"a-rather-long-name-of-edge-{n}"
    other["edges"][24], other["edges"][25] = other["edges"][25], other["edges"][24]
    with pytest.raises(Refused) as refusal:
        of_edges(many).check(hello(other))
    assert len(str(refusal.value)) < 200


def changed(deployment: Deployment, change: Change) -> Deployment:
    again = deployment.model_dump(mode="json")
    change(again)
    return parse_deployment(again, deployment.folder)


@pytest.mark.parametrize("name", ["longer training", "another client", "a client that moved"])
def test_an_edge_takes_its_own_state_after_a_change_of_the_file(tmp_path: Path, name: str) -> None:
    deployment = deploy(tmp_path, sizes=(2, 1), periods=3)

    async def run(deployment: Deployment, periods: int) -> list[int]:
        async with World(deployment) as world:
            await world.start_all(without=["new"])
            began = [edge.done for edge in world.edges.values()]
            await world.until(lambda: all(edge.done >= periods for edge in world.edges.values()))
            return began

    asyncio.run(run(deployment, 3))
    after = changed(deployment, MAY_DIFFER[name])
    assert asyncio.run(run(after, 4 if name == "longer training" else 3)) == [3, 3]


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("schedule.tau1", lambda t: t["schedule"].update(tau1=1)),
        ("model.initial", lambda t: t.update(model={"initial": "other.safetensors"})),
        ("deployment", lambda t: t.update(name="other")),
    ],
)
def test_a_state_that_means_something_else_is_refused_by_field(
    tmp_path: Path, field: str, change: Change
) -> None:
    deployment = deploy(tmp_path, sizes=(1,), periods=2, secure=False)
    write_safetensors(tmp_path / "other.safetensors", as_vector(np.ones(toy.SIZE)), {})

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all()
            await world.finish()
        async with World(changed(deployment, change)) as world:
            with pytest.raises(InputError, match=f"state: {field}"):
                await world.start_edge("a")

    asyncio.run(run())


@pytest.mark.parametrize("averager", ["paper", "all-reduce"])
def test_while_weights_differ_a_link_waits_and_nothing_is_refused(
    tmp_path: Path, averager: str
) -> None:
    """A rolling change: the file with one more client is at a first, then at b."""
    quick = {"round": 1.0, "exchange": 1.5, "ping": 5.0}
    before = deploy(tmp_path, sizes=(1, 1), periods=9999, averager=averager, deadlines=quick)
    add = {"name": "new", "edge": "a", "samples": 100}
    after = changed(before, lambda t: t["clients"].append(add))

    async def run() -> None:
        async with World(before) as world:
            slow = [toy.ToyTrainer(n, c.samples, delay=0.02) for n, c in enumerate(before.clients)]
            await world.start_all({"c0": slow[0], "c1": slow[1]})
            await world.until(lambda: all(edge.done >= 2 for edge in world.edges.values()))
            await world.kill("a")
            world.deployment = after
            a = await world.start_edge("a")
            await world.until(lambda: bool(world.events("weights-differ")))
            used, done = a.links["b"].used, a.done
            await world.until(lambda: a.done >= done + 3)
            assert a.links["b"].used == used, "the mean would not be kept"
            assert not world.events("peer-refused")
            assert [(w.kind, w.about) for w in a.warnings] == [("samples", "b")]
            assert [(w.kind, w.about) for w in world.edges["b"].warnings] == [("samples", "a")]
            await world.kill("b")
            await world.start_edge("b")
            await world.until(lambda: a.links["b"].used > used + 2)
            assert not a.warnings
            lines = [line for line in world.past if line["event"] == "exchange" and line["used"]]
            assert lines

    asyncio.run(run())
