"""Without rounds, one edge with a good certificate says what is not so, about swaps.

It is refused by name or left alone, the honest edges make all their turns, their weighted mean
stays where it was, and nothing that it says makes them grow. Nobody learns anything here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from liar import Liar
from swap_audit import audit_swaps
from twin_world import SIZE, TwinWorld, make_deployment
from virtual import VirtualLoop

from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.peers.agreement import CROWDED
from sdfeel.deploy.peers.counts import AHEAD
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.wire import frames

pytestmark = pytest.mark.usefixtures("cheap")

RING = [("e00", "e01"), ("e01", "e02"), ("e02", "e03"), ("e00", "e03")]
HONEST = ("e00", "e01", "e02")
PACE = {"name": "asynchronous", "deadline": [0.5, 0.3, 0.4, 0.3]}
PERIODS = 12
MOST = 2**64 - 1
FAR = np.full(SIZE, 100.0)
UNTIL = 4.0  # seconds for which it lies, of the six that the turns take: the rest makes it good


@dataclass
class Mouth:
    """What the liar says on one stream, and what it has heard."""

    stream: Any

    async def model(self, values: Any, stage: v1.Stage, **fields: Any) -> None:
        announced = frames.header(as_vector(np.asarray(values, dtype=np.float64)), 1)
        announced.stage = stage
        for name, value in fields.items():
            if name == "counts":
                announced.counts.extend(value)
            else:
                setattr(announced, name, value)
        await self.stream.write(v1.LinkMessage(model=announced))

    async def offer(self, values: Any = FAR, **fields: Any) -> None:
        await self.model(values, v1.Stage.OFFER, **{"period": 2, "ballot": 77, **fields})

    async def word(self, word: v1.Word, **fields: Any) -> None:
        decision = v1.Decision(word=word, **{"period": 2, "ballot": 77, **fields})
        await self.stream.write(v1.LinkMessage(decision=decision))

    async def progress(self, **fields: Any) -> None:
        await self.stream.write(v1.LinkMessage(progress=v1.Progress(**fields)))

    async def asked(self) -> v1.ModelHeader:
        """An honest edge's next offer."""
        seen = deque(self.stream.told)
        while True:
            for message in seen:
                is_model = message.WhichOneof("body") == "model"
                if is_model and message.model.stage == v1.Stage.OFFER:
                    self.stream.told.remove(message)
                    return message.model
            await asyncio.sleep(0.05)
            seen = deque(self.stream.told)


Lie = Callable[[Mouth, int], Awaitable[None]]
LIES: dict[str, tuple[Lie, str]] = {}


def lie(seen: str = "") -> Callable[[Lie], Lie]:
    """Enters what is said again and again; `seen`: the kind of its refusal."""

    def enter(said: Lie) -> Lie:
        LIES[said.__name__] = (said, seen)
        return said

    return enter


@lie("not-finite")
async def offers_nan(mouth: Mouth, _n: int) -> None:
    await mouth.offer(np.full(SIZE, np.nan))


@lie("magnitude")
async def offers_what_is_too_large(mouth: Mouth, _n: int) -> None:
    await mouth.offer(np.full(SIZE, 1e30))


@lie("shape")
async def offers_another_size(mouth: Mouth, _n: int) -> None:
    await mouth.offer(np.zeros(10**6))


@lie("hash")
async def offers_under_a_forged_hash(mouth: Mouth, _n: int) -> None:
    await mouth.offer(sha256=b"x" * 32)


@lie()
async def says_a_huge_size(mouth: Mouth, _n: int) -> None:
    await mouth.offer(values=MOST)


@lie()
async def offers_and_never_decides(mouth: Mouth, n: int) -> None:
    await mouth.offer(ballot=n)


@lie("often")
async def offers_all_the_time(mouth: Mouth, n: int) -> None:
    for number in range(20):
        await mouth.offer(ballot=100 * n + number)


@lie()
async def offers_and_takes_it_back(mouth: Mouth, n: int) -> None:
    await mouth.offer(ballot=n)
    await asyncio.sleep(0.2)
    await mouth.word(v1.Word.ABORT, ballot=n)
    await mouth.word(v1.Word.COMMIT, ballot=n)


@lie()
async def commits_and_aborts(mouth: Mouth, n: int) -> None:
    """Used, and then denied: it is taken back."""
    await mouth.offer(ballot=n)
    await asyncio.sleep(0.2)
    await mouth.word(v1.Word.COMMIT, ballot=n)
    await asyncio.sleep(0.2)
    for _ in range(3):
        await mouth.word(v1.Word.ABORT, ballot=n)


@lie()
async def repeats_a_swap(mouth: Mouth, n: int) -> None:
    """Used once, however often it is offered and decided; so it is taken back once."""
    for _ in range(3):
        await mouth.offer(ballot=n)
        await asyncio.sleep(0.2)
        await mouth.word(v1.Word.COMMIT, ballot=n)
        await mouth.word(v1.Word.COMMIT, ballot=n)
    await mouth.word(v1.Word.ABORT, ballot=n)
    await mouth.word(v1.Word.ABORT, ballot=n)


@lie()
async def decides_before_it_offers(mouth: Mouth, n: int) -> None:
    await mouth.word(v1.Word.COMMIT, ballot=n)
    await mouth.word(v1.Word.ABORT, ballot=n)
    await mouth.offer(ballot=n)
    await mouth.word(v1.Word.ABORT, ballot=n)


@lie()
async def says_huge_numbers(mouth: Mouth, n: int) -> None:
    await mouth.offer(period=MOST, ballot=MOST - n, exchange=2**32 - 1)
    for word in (v1.Word.ASK, v1.Word.PREPARED, v1.Word.REFUSE, v1.Word.ABORT):
        await mouth.word(word, period=MOST, ballot=MOST - n, checkpoint=MOST, exchange=2**32 - 1)


@lie("counts")
async def counts_what_cannot_be(mouth: Mouth, n: int) -> None:
    for count in (
        v1.Count(edge="e00", turns=MOST, steps=1.0),
        v1.Count(edge="e01", turns=1, steps=float("inf")),
        v1.Count(edge="x" * 10_000, turns=1, steps=1.0),
    ):
        await mouth.progress(done=1, checkpoint=n, counts=[count] * 50)
    await mouth.offer(ballot=n, counts=[v1.Count(edge="e02", turns=MOST)])


@lie()
async def answers_what_was_not_asked(mouth: Mouth, n: int) -> None:
    await mouth.model(FAR, v1.Stage.ANSWER, period=2, ballot=n, staleness=1)
    await mouth.word(v1.Word.PREPARED, ballot=n, sha256=b"y" * 32)


@lie()
async def answers_with_another_model_than_promised(mouth: Mouth, _n: int) -> None:
    asked = await mouth.asked()
    about = {"period": asked.period, "ballot": asked.ballot}
    await mouth.word(v1.Word.PREPARED, **about, sha256=b"y" * 32)
    await mouth.model(FAR, v1.Stage.ANSWER, **about)


@lie()
async def answers_and_never_promises(mouth: Mouth, _n: int) -> None:
    asked = await mouth.asked()
    await mouth.model(FAR, v1.Stage.ANSWER, period=asked.period, ballot=asked.ballot)


@lie("not-finite")
async def answers_nan(mouth: Mouth, _n: int) -> None:
    asked = await mouth.asked()
    nan = np.full(SIZE, np.nan)
    await mouth.model(nan, v1.Stage.ANSWER, period=asked.period, ballot=asked.ballot)


@lie("counts")
async def answers_with_a_huge_staleness(mouth: Mouth, _n: int) -> None:
    asked = await mouth.asked()
    about = {"period": asked.period, "ballot": asked.ballot}
    far = as_vector(FAR)
    await mouth.word(v1.Word.PREPARED, **about, sha256=far.sha256)
    await mouth.model(FAR, v1.Stage.ANSWER, **about, staleness=MOST)


@lie()
async def takes_back_what_it_promised(mouth: Mouth, _n: int) -> None:
    """It says that it has forgotten: what was used is taken back, once."""
    asked = await mouth.asked()
    about = {"period": asked.period, "ballot": asked.ballot}
    far = as_vector(FAR)
    await mouth.word(v1.Word.PREPARED, **about, sha256=far.sha256)
    await mouth.model(FAR, v1.Stage.ANSWER, **about)
    await asyncio.sleep(0.3)
    for _ in range(3):
        await mouth.word(v1.Word.ABORT, **about)


@lie()
async def asks_for_a_model_all_the_time(mouth: Mouth, n: int) -> None:
    for _ in range(50):
        await mouth.stream.write(v1.LinkMessage(wanted=v1.Wanted()))
        await mouth.stream.write(v1.LinkMessage(wanted=v1.Wanted(period=MOST, ballot=n + 1)))


def play(said: Lie) -> tuple[TwinWorld, list[dict[str, Any]]]:
    """Three honest edges and the liar on a ring; and all that went wrong in a task."""
    deployment = make_deployment(
        [1] * 4, RING, PERIODS, "paper", guests=False, pace=PACE, audit=True
    )
    loop = VirtualLoop(5, longest=0.05)
    broken: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: broken.append(context))

    async def script(stream: Any, _peer: str) -> None:
        mouth, number = Mouth(stream), 0
        while loop.time() < UNTIL:
            number += 1
            await said(mouth, number)
            await asyncio.sleep(0.25)

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, Topology(deployment), seed=5, loop=loop)
        await Liar(world, script).listen()
        for name in (*HONEST, "c0", "c1", "c2"):
            await world.start(name)
        while not all(world.edges[name].phase == "finished" for name in HONEST):
            assert loop.time() < 120, world.where()
            await asyncio.sleep(0.1)
        await asyncio.sleep(5.0)
        return world

    return loop.run(main()), broken


@pytest.mark.parametrize("name", LIES)
def test_an_edge_that_lies_about_swaps_harms_nobody(name: str) -> None:
    said, kind = LIES[name]
    world, broken = play(said)
    assert not broken, broken
    first = np.array([world.topology.at(0).share(e) for e in HONEST]) @ np.stack(
        [world.disks[e].first.array() for e in HONEST]
    )
    np.testing.assert_allclose(world.mean(HONEST), first, atol=1e-3)
    lines = [line for edge in HONEST for line in world.edges[edge].log.recent]
    if kind:
        kinds = {line["kind"] for line in lines if line["event"] == "refused"}
        assert kind in kinds
    for edge in HONEST:
        known = world.edges[edge].links.agreement
        assert len(known.open) <= 2 * CROWDED
        assert len(known.settled) < 500
    disks = {edge: world.disks[edge].found.agreement for edge in HONEST}
    found = audit_swaps(world.topology, lines, disks)
    assert not found.problems
    assert found.both > 10


PATH = [("e00", "e01"), ("e01", "e02"), ("e02", "e03")]


@pytest.mark.parametrize("about", ["e03", "e00"], ids=["itself", "a-third-edge"])
def test_a_short_lie_about_steps_does_not_scale_those_of_others_for_good(about: str) -> None:
    """For three turns it says that an edge makes one step; then it says nothing any more."""
    deployment = make_deployment([1] * 4, PATH, 40, "paper", guests=False, pace=PACE)
    loop = VirtualLoop(5, longest=0.01)

    async def script(stream: Any, _peer: str) -> None:
        await asyncio.sleep(6.0 - loop.time())
        for turn in range(1, 4):
            turns = turn if about == "e03" else turn + 30
            lie = v1.Count(edge=about, turns=turns, steps=1.0)
            await stream.write(v1.LinkMessage(progress=v1.Progress(counts=[lie])))
            await asyncio.sleep(0.3)

    slowest: dict[str, list[float]] = {edge: [] for edge in HONEST}
    turns: dict[str, dict[str, int]] = {}

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, Topology(deployment), seed=5, loop=loop)
        await Liar(world, script).listen()
        for name in (*HONEST, "c0", "c1", "c2"):
            await world.start(name)
        while loop.time() < 10.0:
            await asyncio.sleep(0.1)
            for edge in HONEST:
                counts: Any = world.edges[edge].carrier
                if loop.time() > 5.5:
                    slowest[edge].append(counts.counts.slowest)
                turns[edge] = dict(counts.counts.turns)
        return world

    loop.run(main())
    for edge, values in slowest.items():
        assert values[-1] > 10, f"{edge} has heard of slower ones than there are"
        if about == "e00":
            assert min(values) > 10, "not believed for a moment"
            assert turns[edge]["e00"] <= turns["e00"]["e00"] + AHEAD
