"""Real deployments without rounds: over gRPC with certificates, with faults, lies and questions."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import toy
from harness import World, content, deploy

from sdfeel import Deadline, InputError
from sdfeel.deploy.client.client import ClientProgram
from sdfeel.deploy.client.step_budget import StepBudget
from sdfeel.deploy.client.trainers import make_trainer
from sdfeel.deploy.config import parse_deployment
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import Change, as_vector
from sdfeel.deploy.operate.rollback import roll_back
from sdfeel.deploy.operate.status import ask, status_table
from sdfeel.deploy.peers.counts import Counts
from sdfeel.deploy.peers.flows import SLACK
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.token_bucket import TokenBucket
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.wire import frames

PACE = {"name": "asynchronous", "deadline": [0.4, 0.25, 0.3]}


def test_an_edge_dies_and_comes_back_and_the_mean_is_kept(tmp_path: Path) -> None:
    """By the logs: every swap is used by both ends or by neither; and all turns are made."""
    deployment = deploy(tmp_path, periods=8, pace=PACE)
    topology = Topology(deployment)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all()
            await world.until(lambda: all(edge.done >= 3 for edge in world.edges.values()))
            (row,) = [row for row in await ask(deployment) if row.name == "a"]
            assert row.pace == "asynchronous"
            assert row.steps is not None
            assert row.steps >= 1
            assert status_table([row], "t")
            await world.kill("b")
            await world.until(lambda: all(edge.done >= 5 for edge in world.edges.values()))
            await world.start_edge("b")
            await world.finish()
            assert {n: e.done for n, e in world.edges.items()} == {
                name: topology.plan(name) for name in topology.at(0).edges
            }
            assert world.audit() > 10
            assert world.events("swap", "b")
            models = np.stack([edge.model.array() for edge in world.edges.values()])
            goals = np.stack([toy.goal(n) for n in range(6)])
            assert np.abs(models).max() < 2 * np.abs(goals).max()
            assert np.abs(models).max() > 0.1, "they have learned something"
            for client in world.clients.values():
                assert client.accepted

    asyncio.run(run())


def test_nobody_waits_for_a_neighbour_whose_clients_are_slow(tmp_path: Path) -> None:
    """An edge whose only client never answers makes its turns, and answers the other's swaps."""
    pace = {"name": "asynchronous", "deadline": 0.3}
    deployment = deploy(tmp_path, sizes=(1, 1), periods=5, pace=pace)

    async def run() -> None:
        async with World(deployment) as world:
            slow = toy.ToyTrainer(1, deployment.client("c1").samples, delay=0.7)
            await world.start_all({"c1": slow})
            await world.until(lambda: all(edge.done == 5 for edge in world.edges.values()))
            rows = world.events("period", "a")
            assert max(row["collect"] for row in rows) < 2.0
            assert [row["links_used"] for row in rows].count(1) >= 3
            assert [row["participants"] for row in world.events("period", "b")].count([]) >= 3
            assert world.events("deadline", "b")

    asyncio.run(run())


def test_large_models_are_swapped_through_files(tmp_path: Path) -> None:
    """They are added up beside the event loop, while a neighbour may ask for another swap."""
    size = 300_000
    pace = {"name": "asynchronous", "deadline": [0.5, 0.4]}
    deployment = deploy(tmp_path, size=size, sizes=(1, 1), periods=4, pace=pace)

    async def run() -> None:
        async with World(deployment) as world:
            world.size = size
            await world.start_all()
            await world.finish()
            assert world.edges["a"].model.is_large
            assert world.audit() >= 4
            assert not list((tmp_path / "state").glob("*/*.tmp"))

    asyncio.run(run())


@pytest.mark.parametrize("steps", [0, 10**6, 21])
def test_steps_that_cannot_be_are_refused(tmp_path: Path, steps: int) -> None:
    """A client that claims them would scale what everybody else has done."""
    deployment = deploy(tmp_path, sizes=(2, 1), periods=3, pace={**PACE, "deadline": 0.3})
    assert deployment.most_steps == 20

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all()
            liar = world.clients["c0"]
            original = liar._upload

            async def upload(stream: Any, period: int, trained: Any) -> None:
                object.__setattr__(trained, "steps", steps)
                await original(stream, period, trained)

            liar._upload = upload  # type: ignore[method-assign]
            await world.finish()
            a = world.edges["a"]
            assert a.metrics.value("sdfeel_refused_total", kind="steps") >= 1
            assert liar.accepted == []
            assert world.clients["c1"].accepted

    asyncio.run(run())


# What does not go together.


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"pace": {"name": "asynchronous"}}, "pace.deadline"),
        ({"pace": "asynchronous"}, "pace.deadline"),
        ({"pace": {**PACE, "deadline": [1.0, 2.0]}}, "pace.deadline"),
        ({"pace": {**PACE, "deadline": 0}}, "pace.deadline"),
        ({"pace": {**PACE, "deadline": 1e-9}}, "pace.deadline"),
        ({"pace": {**PACE, "mixing": "mean"}}, "pace.mixing"),
        ({"pace": {**PACE, "compensation": 2}}, "pace.compensation"),
        ({"pace": {**PACE, "psi": "none"}}, "pace.psi"),
        ({"pace": {**PACE, "speed": 1}}, "pace.speed"),
        ({"pace": "fedbuff"}, "pace"),
        ({"pace": {"name": "deadline", "seconds": 1.0}}, "pace.name"),
        ({"pace": Deadline(seconds=1.0)}, "pace"),
        ({"averager": "all-reduce"}, "schedule.averager"),
        ({"alpha": 2}, "schedule.alpha"),
        ({"local": {"trainer": "flower:my_app:app"}}, "local.trainer"),
        ({"fallback": True}, "clients.c0.fallbacks"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_go_together_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    table = content(**{"pace": PACE, **change})
    with pytest.raises(InputError) as caught:
        parse_deployment(table, Path())
    assert caught.value.field == field


def test_a_trainer_of_the_command_line_is_refused_too(tmp_path: Path) -> None:
    deployment = parse_deployment(content(pace=PACE), tmp_path)
    local = deployment.local.model_copy(update={"trainer": "flower:my_app:app"})
    with pytest.raises(InputError, match="how many steps"):
        make_trainer(deployment.model_copy(update={"local": local}), "c0")


def test_strangers_on_an_edges_list_are_refused() -> None:
    table = content(pace=PACE)
    table["edges"][0]["allow"] = ["c0", "c1", "c5"]
    with pytest.raises(InputError, match="nobody is a guest"):
        parse_deployment(table, Path())


# What an edge knows, and whom it believes.

TOPOLOGY = Topology(parse_deployment(content(periods=6, pace=PACE), Path()))


def test_faster_edges_make_more_turns() -> None:
    assert [TOPOLOGY.plan(edge) for edge in "abc"] == [6, 10, 8]
    assert TOPOLOGY.counted(3, "a", "b") == 5
    rounds = Topology(parse_deployment(content(periods=6), Path()))
    assert [rounds.plan(edge) for edge in "abc"] == [6, 6, 6]


def test_staleness_is_what_either_end_has_heard_of() -> None:
    a, b = Counts("a", TOPOLOGY), Counts("b", TOPOLOGY)
    a.aggregated(1, 2.0)
    b.hear("a", a.tell())
    b.aggregated(1, 3.0)
    assert b.staleness == 0
    b.hear("c", [v1.Count(edge="c", turns=2, steps=1.5)])
    a.aggregated(2, 2.0)
    b.hear("a", a.tell())
    assert b.staleness == 3
    assert b.slowest == pytest.approx(2.0 / 0.4)
    again = Counts("b", TOPOLOGY)
    again.restore(b.notes())
    assert again == b


@pytest.mark.parametrize(
    "lie",
    [
        v1.Count(edge="x", turns=1),
        v1.Count(edge="c", turns=9),
        v1.Count(edge="c", turns=1, steps=0.5),
        v1.Count(edge="c", turns=1, steps=21.0),
        v1.Count(edge="c", turns=1, steps=math.nan),
    ],
    ids=["edge", "turns", "too-few", "too-many", "nan"],
)
def test_counts_that_cannot_be_change_nothing(lie: v1.Count) -> None:
    counts = Counts("a", TOPOLOGY, {"c": 1}, {"c": 2.0})
    assert not counts.hear("b", [lie])
    assert (counts.turns, counts.steps) == ({"c": 1}, {"c": 2.0})


def test_nobody_knows_better_about_us_and_an_edges_own_word_counts() -> None:
    counts = Counts("a", TOPOLOGY, {"a": 2, "b": 5})
    assert counts.hear("c", [v1.Count(edge="a", turns=4), v1.Count(edge="b", turns=3)])
    assert counts.turns == {"a": 2, "b": 5}
    counts.hear("b", [v1.Count(edge="b", turns=3)])
    assert counts.turns == {"a": 2, "b": 3}, "it was rolled back, and says so"


def test_an_edge_that_asks_all_the_time_is_answered_as_often_as_it_can_be_ready() -> None:
    allowed = TokenBucket(seconds=SLACK)
    answered = sum(allowed.take(now / 100) for now in range(1000))
    assert 10 <= answered <= 14
    patient = TokenBucket(seconds=SLACK)
    assert all(patient.take(float(now)) for now in range(20))


def test_a_client_makes_as_many_steps_as_fit() -> None:
    stride = StepBudget(most=20)
    assert stride.steps(10.0, 10.0) == 1, "the first time it learns how long a step takes"
    stride.took(1, 1.0)
    assert stride.steps(10.0, 10.0) == 9
    assert stride.steps(10.0, 4.0) == 3
    assert stride.steps(10.0, 0.1) == 1
    assert stride.steps(100.0, 100.0) == 20
    stride.was(in_time=False)
    assert stride.steps(10.0, 10.0) == 8, "it came late: more time for the upload"
    for _ in range(10):
        stride.was(in_time=True)
    assert stride.steps(10.0, 10.0) == 9


# Back to an older model.


def kept(folder: Path, edge: str, heard: Callable[[int], dict[str, int]]) -> None:
    """All turns of an edge: the model says which, and links remember something."""
    store = Store(folder / "state" / edge, {"edge": edge})
    store.acquire()
    open_ = {"peer": "b", "id": [1, 0, 7], "coordinates": True, "used": True, "life": 1,
             "without": 1, "own": 1, "change": 0}  # fmt: skip
    links = {"checkpoint": 5, "open": [open_], "settled": [["b", 1, 0, 6, 1]], "owed": []}
    change = Change((as_vector(np.ones(3)),), (1.0,))
    for turn in range(1, TOPOLOGY.plan(edge) + 1):
        pace = {"counts": {"turns": heard(turn)}, "steps": {"c0": turn}}
        model = as_vector(np.full(3, 100 * ord(edge) + turn))
        store.save(EdgeCheckpoint(turn, model, links, [change], pace))
    store.release()


def test_after_a_rollback_all_go_on_from_the_mean_of_what_they_had(tmp_path: Path) -> None:
    deployment = parse_deployment(content(periods=6, pace=PACE), tmp_path)
    for edge in "abc":
        kept(tmp_path, edge, lambda turn: {"a": turn // 2})
    # Period 5 of a is 8 of b and 6 of c: the last that they still have before it.
    goals = {"a": 5, "b": 7, "c": 5}
    assert roll_back(deployment, 5) == goals
    mean = sum(
        TOPOLOGY.at(0).share(edge) * (100 * ord(edge) + turn) for edge, turn in goals.items()
    )
    for edge, turn in goals.items():
        folder = tmp_path / "state" / edge
        found, problems = Store(folder, {"edge": edge}).load(3)
        assert not problems
        assert found is not None
        assert found.done == turn
        assert found.model.array() == pytest.approx(mean)
        assert not found.agreement, "nobody is owed anything"
        assert found.pace["steps"] == {"c0": turn}
        assert (folder / f"period-{turn:09d}.safetensors.undone").exists()
        assert not list(folder.glob("*.tmp"))
    with pytest.raises(InputError, match="no checkpoint as old"):
        roll_back(deployment, 0)


def test_a_rollback_may_come_twice(tmp_path: Path) -> None:
    """Nothing was trained in between. What lay there at first is what stays aside."""
    deployment = parse_deployment(content(periods=6, pace=PACE), tmp_path)
    for edge in "abc":
        kept(tmp_path, edge, lambda turn: {"a": turn // 2})
    goals = roll_back(deployment, 5)
    aside = tmp_path / "state" / "a" / f"period-{goals['a']:09d}.safetensors.undone"
    before = aside.read_bytes()
    assert roll_back(deployment, 5) == goals
    assert aside.read_bytes() == before
    found, _ = Store(tmp_path / "state" / "a", {"edge": "a"}).load(3)
    assert found is not None
    mean = sum(
        TOPOLOGY.at(0).share(edge) * (100 * ord(edge) + turn) for edge, turn in goals.items()
    )
    assert found.model.array() == pytest.approx(mean)


def test_a_checkpoint_that_has_heard_of_later_turns_is_not_gone_back_to(tmp_path: Path) -> None:
    """An edge that was away counts fewer turns: by its own number it would not be late."""
    deployment = parse_deployment(content(periods=6, pace=PACE), tmp_path)
    kept(tmp_path, "a", lambda _: {})
    kept(tmp_path, "b", lambda turn: {"a": turn - 1})
    kept(tmp_path, "c", lambda _: {})
    assert roll_back(deployment, 5)["b"] == 1, "7, which is there too, has heard of 6 of a"


def test_who_is_not_here_cannot_be_left_behind(tmp_path: Path) -> None:
    """Nothing is touched: what the others had settled with it could not be undone."""
    deployment = parse_deployment(content(periods=6, pace=PACE), tmp_path)
    for edge in "ab":
        kept(tmp_path, edge, lambda _: {})
    for name in (None, "a"):
        with pytest.raises(InputError, match="all edges go back together") as caught:
            roll_back(deployment, 4, name)
        assert caught.value.field == "edges"
    assert max(Store(tmp_path / "state" / "a", {"edge": "a"}).periods()) == 6


def test_a_rolled_back_deployment_keeps_the_mean_that_it_began_from(tmp_path: Path) -> None:
    """Real edges: nobody asks for what was agreed on before, and swaps go on."""
    deployment = deploy(tmp_path, periods=8, pace=PACE)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all()
            await world.until(lambda: all(edge.done >= 5 for edge in world.edges.values()))
            for name in [*world.clients, *world.edges]:
                await world.kill(name)
            periods = roll_back(deployment, 3)
            world.past.clear()
            for edge in deployment.edges:
                await world.start_edge(edge.name)
            models = [edge.model.array() for edge in world.edges.values()]
            assert all((model == models[0]).all() for model in models)
            assert {name: edge.done for name, edge in world.edges.items()} == periods
            for client in deployment.clients:
                world.start_client(client.name)
            await world.finish()
            assert world.audit() > 5
            assert not world.events("taken-back")
            assert not world.events("resolved")

    asyncio.run(run())


# What a client believes.


@pytest.mark.parametrize(
    "lie",
    [{"seconds": 0.0}, {"seconds": math.inf}, {"seconds": math.nan}, {"first": 0}, {"first": 21},
     {"period": 7, "first": 1}],
    ids=["no-time", "for-ever", "nan", "no-step", "too-many", "beyond-the-end"],
)  # fmt: skip
def test_a_client_takes_no_work_that_cannot_be(tmp_path: Path, lie: dict[str, float]) -> None:
    table = content(periods=6, pace=PACE, security={"plaintext": True})
    deployment = parse_deployment(table, tmp_path)
    trainer, door = toy.ToyTrainer(0, deployment.client("c0").samples), cast(Any, object())
    client = ClientProgram(deployment, "c0", trainer, None, door)
    announced = frames.header(as_vector(np.zeros(toy.SIZE)), 1)
    good = {"period": 1, "first": 1, "steps": 20, "seconds": 0.4}
    assert client._open(v1.Task(model=announced, **good)).begin() is not None
    with pytest.raises(Refused, match="not as this file says"):
        client._open(v1.Task(model=announced, **{**good, **lie}))
