"""Facts on their way to an operator: a few of each kind, and nothing else is believed of them."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest
from harness import World, deploy

from sdfeel.deploy.facts import facts, stream
from sdfeel.deploy.facts.facts import FACTS, Fact
from sdfeel.deploy.facts.stream import MOST_BYTES, Recent, fields_as_json
from sdfeel.deploy.operate.asking import operator
from sdfeel.deploy.operate.notes import read_facts
from sdfeel.deploy.operate.status import EdgeConnection
from sdfeel.deploy.protocol import v1


def wire(place: int, fact: Fact, **changed: Any) -> v1.Fact:
    fields: dict[str, Any] = {
        "number": place,
        "time": 5.0,
        "kind": type(fact).__name__,
        "fields": fields_as_json(fact),
    }
    return v1.Fact(**fields | changed)


DOWN = facts.LinkDown(peer="b", reason="no file", left=True)


@pytest.mark.parametrize(
    "fact",
    [
        DOWN,
        facts.Period(
            period=3, participants=("c0", "c1"), links_used=2, collect=0.5, mix=0.25, save=0.125
        ),
        facts.Measured(iteration=4, values={"test_loss": 0.5}),
        facts.MessageRefused(kind="hash", reason="no", peer="b", key=(3, 1)),
    ],
)
def test_a_fact_is_the_same_at_the_other_end(fact: Fact) -> None:
    (note,) = read_facts([wire(7, fact, count=3)], 6)
    assert (note.number, note.time, note.fact, note.count) == (7, 5.0, fact, 3)


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "Explosion"},
        {"kind": "Fact"},
        {"time": math.nan},
        {"time": math.inf},
        {"number": 6},
        {"fields": "no JSON"},
        {"fields": "[]"},
        {"fields": '{"peer": {"a": 1}}'},
        {"fields": '{"reason": "no peer"}'},
        {"fields": "[" * 30_000},
        {"fields": '{"peer": "' + "x" * 100_000 + '"}'},
    ],
    ids=lambda changed: str(changed)[:40],
)
def test_what_is_no_fact_is_left_out(changed: dict[str, Any]) -> None:
    good = wire(8, DOWN)
    assert [n.number for n in read_facts([wire(7, DOWN, **changed), good], 6)] == [8]


def test_texts_are_harmless_on_a_terminal() -> None:
    (note,) = read_facts([wire(1, facts.LinkDown(peer="b\x1b[2J", reason="\x07" * 9))], 0)
    assert isinstance(note.fact, facts.LinkDown)
    assert (note.fact.peer + note.fact.reason).isprintable()


def test_a_flood_of_one_kind_does_not_push_out_the_others() -> None:
    recent = Recent()
    recent.add(facts.LinkUp(peer="b", done=0))
    for number in range(1000):
        recent.add(facts.Accepted(period=number))
    notes = [note for note, _ in recent.since(0)]
    assert notes[0].fact == facts.LinkUp(peer="b", done=0)
    assert [note.number for note in notes[1:]] == list(range(962, 1002))
    assert [note.number for note, _ in recent.since(999)] == [1000, 1001]


def test_an_answer_is_bounded_in_bytes_and_has_the_newest() -> None:
    recent = Recent()
    names = [f"{n:0{stream.LONGEST * 2}}" for n in range(1000)]
    for kind in (facts.OtherFile, facts.OlderFileHolds):
        for _ in range(30):
            recent.add(kind(**{"edges" if kind is facts.OtherFile else "without": names}))
    answer = recent.since(0)
    assert 0 < sum(len(fields) for _, fields in answer) <= MOST_BYTES
    assert answer[-1][0].number == 60
    assert all(len(name) <= stream.LONGEST for name in json.loads(answer[-1][1])["without"])


def test_every_fact_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the page would silently miss what one of them says."""
    from pydantic import TypeAdapter

    for kind in FACTS:
        assert TypeAdapter(kind).json_schema()["type"] == "object"


def test_an_edge_tells_each_fact_once_and_again_after_a_restart(tmp_path: Any) -> None:
    deployment = deploy(tmp_path, sizes=(1, 1), periods=9999)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all()
            await world.until(lambda: world.edges["a"].done >= 2)
            line = EdgeConnection(deployment, operator(deployment), "a")
            first = await line.look(20.0)
            kinds = {type(note.fact) for note in first.facts}
            assert {facts.FreshStart, facts.Listening, facts.LinkUp, facts.ClientUp} <= kinds
            assert abs(first.ahead) < 5
            second = await line.look(20.0)
            assert first.life == second.life
            assert all(note.number > first.facts[-1].number for note in second.facts)
            await world.kill("a")
            await world.start_edge("a")
            third = await line.look(20.0)
            if third.row.problem:  # the connection was the old one's
                third = await line.look(20.0)
            assert third.life not in (0, first.life)
            assert facts.Resumed in {type(note.fact) for note in third.facts}
            await line.close()

    asyncio.run(run())
