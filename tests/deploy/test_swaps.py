"""Swaps without rounds keep the weighted mean, whatever happens between their messages.

First with numbers and every order of events, then with whole deployments on the network in memory,
then with real ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from ends import Message, Trial
from swap_ends import SwapTrial
from twin import End
from twin_world import TwinWorld, make_deployment, run_schedule, small
from virtual import NODE, VirtualLoop

from histories import PAIR, PATH, begun, drive, walk
from sdfeel.deploy.peers import agreement
from sdfeel.deploy.peers.agreement import Do, Input, Standing, Unlisted
from sdfeel.deploy.peers.flows import FULL
from sdfeel.deploy.topology import Topology


@pytest.mark.parametrize(
    ("begin", "faults", "least"),
    [(("a",), 1, 4_000), (("a", "b"), 0, 1_000)],
    ids=["one-and-a-fault", "both-at-once"],
)
def test_every_order_of_events(begin: tuple[str, ...], faults: int, least: int) -> None:
    """Whoever begins, also both at once: once it is calm, the mean is exactly what it was."""

    def is_beyond(trial: Trial, move: Message) -> bool:
        """One turn each is enough: those who died in it may begin it again."""
        return move[0] == "start" and (move[1] not in begin or trial.edges[move[1]].done >= 1)

    assert walk(begun(SwapTrial, PAIR, begin), faults, is_beyond) > least


def test_random_histories() -> None:
    """Also three edges in a row, where swaps of different links overlap at the one in between."""
    done: Counter[Do] = Counter()
    for seed in range(600):
        trial = drive(SwapTrial, (PAIR, PATH), seed)
        trial.check()
        done.update(trial.acts)
    assert all(done[do] > 5 for do in Do), f"not everything was tried: {done}"


@pytest.mark.parametrize(
    "line",
    [
        (Standing.COMMITTED, Input.REBORN),
        (Standing.COMMITTED, Input.ABORT),
        (Standing.IN_DOUBT, Input.COMMIT),
        (Standing.PREPARED, Input.MET),
        (Standing.SETTLED, Input.ASKED),
    ],
    ids=lambda line: f"{line[0].value}, {line[1].value}",
)
def test_swaps_need_the_table(
    line: tuple[Standing, Input], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the decision here, so also the line that only saves time in rounds."""
    monkeypatch.setitem(agreement.TABLE, line, (line[0], ()))
    with pytest.raises((AssertionError, KeyError, Unlisted)):
        [drive(SwapTrial, (PAIR, PATH), seed).check() for seed in range(2000)]


# Whole deployments on the network in memory.


SHAPES = ("pair", "pair", "path", "ring", "star")
CODECS = ("float32", "int8", "float32", "int4")


@pytest.mark.usefixtures("cheap")
def test_histories_with_faults() -> None:
    """Edges and clients die, freeze and are cut off: the mean is kept and all turns are made."""
    seen: Counter[str] = Counter()
    for seed in range(40):
        shape, codec = SHAPES[seed % len(SHAPES)], CODECS[seed % len(CODECS)]
        try:
            world = run_schedule(seed, shape, f"mean-preserving {codec}")
        except AssertionError as problem:
            raise AssertionError(f"seed {seed} ({shape}, {codec}): {problem}") from problem
        assert world.checker.looks
        seen.update(world.events)
    for event in ("taken-back", "resolved", "link-down", "resumed"):
        assert seen[event], f"{event} never happened: {seen}"


def _strike_at(
    number: int, strike: Callable[[TwinWorld], None], codec: str
) -> tuple[TwinWorld, bool]:
    """A pair in which something happens right after the so-manieth message between the edges."""
    deployment, topology = small("pair", f"mean-preserving {codec}", 3 if codec == "int8" else 2)
    loop = VirtualLoop(number)
    landed, original = 0, End.take

    async def main() -> tuple[TwinWorld, bool]:
        world = TwinWorld(deployment, topology, 3, loop)

        def take(end: End, message: Any) -> None:
            nonlocal landed
            original(end, message)
            if {end.me, end.peer} == {"e00", "e01"}:
                landed += 1
                if landed == number:
                    loop.call_soon(strike, world)

        End.take = take  # type: ignore[method-assign]
        try:
            await world.start_all()
            await world.finish(100.0)
        finally:
            End.take = original  # type: ignore[method-assign]
        world.checker.calm()
        return world, landed >= number

    return loop.run(main())


def _restart(world: TwinWorld, *names: str, quietly: bool = False) -> None:
    for name in names:
        world.kill(name, quietly)
        world.starting = asyncio.ensure_future(world.start(name))


STRIKES: dict[str, Callable[[TwinWorld], None]] = {
    "cut": lambda world: world.net.cut("e00", "e01"),
    "kill-one": lambda world: _restart(world, "e00"),
    "kill-other": lambda world: _restart(world, "e01", quietly=True),
    "kill-both": lambda world: _restart(world, "e00", "e01"),
    "freeze": lambda world: world.net.silence(("e01", "e00"), 3.0),
}


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("codec", ["float32", "int8"])
@pytest.mark.parametrize("strike", STRIKES)
def test_a_fault_after_every_single_message(strike: str, codec: str) -> None:
    """Real edges: after each message of their first swaps a link is cut, or an end dies."""
    number = 1
    while number < 60:
        try:
            _, happened = _strike_at(number, STRIKES[strike], codec)
        except AssertionError as problem:
            raise AssertionError(f"{strike} after message {number}: {problem}") from problem
        if not happened:
            break
        number += 1
    assert number > 20, "there were fewer messages than two swaps have"


@pytest.mark.usefixtures("cheap")
def test_an_edge_without_a_disk_goes_on_from_a_neighbour() -> None:
    """It ends with the others, wherever it began to count."""
    deployment, topology = small("ring", "mean-preserving", 6)
    loop = VirtualLoop(1)

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, topology, 1, loop)
        await world.start_all()
        while world.disks["e02"].found.done < 4:
            await asyncio.sleep(0.05)
        world.kill("e01")
        world.disks["e01"].found = None
        world.checker.saved = lambda _: None  # what was on it, nobody has any more
        await world.start("e01")
        await world.finish(100.0)
        return world

    world = loop.run(main())
    lines = [*world.past, *world.edges["e01"].log.recent]
    (adopted,) = [line for line in lines if line["event"] == "adopted"]
    assert 1 <= adopted["period"] <= topology.plan("e01")
    assert world.disks["e01"].found.done == topology.plan("e01")


@pytest.mark.usefixtures("cheap")
def test_who_is_left_behind_ends_when_the_others_have_gone() -> None:
    """Two others must have finished, and nobody be there: else it would go on alone."""
    deployment, topology = small("ring", "mean-preserving", 6)
    loop = VirtualLoop(2)

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, topology, 2, loop)
        await world.start_all()
        usual = world.loop.run_in_executor

        def lag(executor: Any, work: Any, *args: Any) -> Any:
            """Its disk takes seconds for a checkpoint."""
            if NODE.get() != "e01" or "save" not in repr(work):
                return usual(executor, work, *args)
            saved = world.loop.create_future()
            world.loop.call_later(3.0, lambda: saved.done() or saved.set_result(work(*args)))
            return saved

        world.loop.run_in_executor = lag  # type: ignore[method-assign]
        await world.finish(200.0)
        return world

    world = loop.run(main())
    lines = [*world.past, *world.edges["e01"].log.recent]
    assert any((line["node"], line["event"]) == ("e01", "jump") for line in lines)
    world.checker.calm()


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("dies", [False, True], ids=["calm", "dies"])
def test_a_slow_edge_writes_down_what_fast_neighbours_gave_it(dies: bool) -> None:
    """Ten swaps come within one of its turns: its neighbour may forget them before it is over, and
    none is left out because too many are open.
    """
    pace = {"name": "asynchronous", "deadline": [2.0, 0.2]}
    links = [("e00", "e01")]
    deployment = make_deployment([1, 1], links, 3, "paper", guests=False, pace=pace)
    loop = VirtualLoop(4)

    async def main() -> TwinWorld:
        world = TwinWorld(deployment, Topology(deployment), 4, loop)
        await world.start_all()
        await asyncio.sleep(3.5)
        slow, fast = world.disks["e00"], world.edges["e01"]
        assert slow.saves >= 2 + slow.found.done - 1, "more checkpoints than turns"
        assert fast.links["e00"].used > 10
        assert fast.links["e00"].skipped == 0
        assert len(fast.links.agreement.open) <= FULL + 1
        if dies:
            world.kill("e00")
            await world.start("e00")
        await world.finish(200.0)
        world.checker.calm()
        return world

    world = loop.run(main())
    assert world.checker.looks > 10
