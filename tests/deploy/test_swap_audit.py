"""The audit of swaps sees what is wrong, beside everything that it excuses.

First by lines that are written here, then by those of whole deployments on the network in memory,
with faults, in which the agreement is broken on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import content
from swap_audit import Found, audit_swaps
from twin_world import TwinWorld, run_schedule

from sdfeel.deploy.config import parse_deployment
from sdfeel.deploy.edge.turns import Turns
from sdfeel.deploy.model.vectors import Change
from sdfeel.deploy.peers import agreement
from sdfeel.deploy.peers.agreement import Agreement, Do, Input, Standing
from sdfeel.deploy.peers.flows import Flows
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.topology import Topology

PACE = {"name": "asynchronous", "deadline": [0.4, 0.25, 0.3]}
TOPOLOGY = Topology(parse_deployment(content(periods=6, pace=PACE), Path()))
HISTORIES = 300  # the rarest mutant is seen in the 114th
FACTOR = TOPOLOGY.at(0).share("a") / TOPOLOGY.at(0).share("b")
Lines = list[dict[str, Any]]


def used(node: str, peer: str, moved: float, since: int = 3, **fields: Any) -> dict[str, Any]:
    about = {"ballot": 7, "key": [1, 0], "since": since, "moved": moved}
    return {"node": node, "peer": peer, "event": "swap", **about, **fields}


def given(node: str, peers: str, moved: float, really: float | None = None) -> dict[str, Any]:
    after = 1.0 + (moved if really is None else really)
    return {"node": node, "event": "given", "peers": [*peers], "moved": moved,
            "before": 1.0, "after": after}  # fmt: skip


def resumed(node: str, checkpoint: int) -> dict[str, Any]:
    return {"node": node, "event": "resumed", "checkpoint": checkpoint}


def row(peer: str, used: bool) -> dict[str, Any]:
    return {"peer": peer, "id": [1, 0, 7], "used": used}


def disk(checkpoint: int = 9, open: Lines = (), settled: str = "") -> dict[str, Any]:  # type: ignore[assignment]
    rows = [[peer, 1, 0, 7, 3] for peer in settled]
    return {"checkpoint": checkpoint, "open": list(open), "settled": rows}


A, B = used("a", "b", 0.5), used("b", "a", -0.5 * FACTOR)
GIVEN_A, GIVEN_B = given("a", "b", 0.5), given("b", "a", -0.5 * FACTOR)
ALONE, BOTH = [A, GIVEN_A], [A, GIVEN_A, B, GIVEN_B]
BACK_A = [{**A, "event": "taken-back", "since": 5, "moved": -0.5}, given("a", "b", -0.5)]
BACK_B = [
    {**B, "event": "taken-back", "since": 5, "moved": 0.5 * FACTOR},
    given("b", "a", 0.5 * FACTOR),
]
LATER = [{**B, "event": "resolved", "used": True, "since": 5}, GIVEN_B]
ELSEWHERE = [used("a", "c", 0.5, ballot=8), given("a", "c", 0.5)]
EVEN = {"a": disk(), "b": disk(), "c": disk()}

# What is right, beside the last checkpoints on disk.
RIGHT: dict[str, tuple[Lines, dict[str, Any]]] = {
    "both": (BOTH, EVEN),
    "taken back": (ALONE + BACK_A, EVEN),
    "added later": (ALONE + LATER, EVEN),
    "died with it": ([*ALONE, resumed("a", 3)], EVEN),
    "died with it and used again": ([*BOTH, resumed("b", 3), *LATER], EVEN),
    "would die with it": (ALONE, {**EVEN, "a": disk(3)}),
    "open as used": (ALONE, {**EVEN, "a": disk(open=[row("b", True)])}),
    "promised": (ALONE, {**EVEN, "a": disk(settled="b"), "b": disk(open=[row("a", False)])}),
    "dropped": ([{**B, "event": "resolved", "used": False}], EVEN),
}
WRONG: dict[str, tuple[Lines, dict[str, Any]]] = {
    "one alone": (ALONE, EVEN),
    "one alone, as if settled": (ALONE, {**EVEN, "a": disk(settled="b")}),
    "the mean moves": ([*ALONE, used("b", "a", 0.5), given("b", "a", 0.5)], EVEN),
    "taken back by one of two": (BOTH + BACK_A, EVEN),
    "the wrong end takes it back": (ALONE + BACK_B, EVEN),
    "taken back in part": (
        [*BOTH, *BACK_A, {**BACK_B[0], "moved": 0.1}, given("b", "a", 0.1), *LATER, A, GIVEN_A],
        EVEN,
    ),
    "resumed behind it": ([*ALONE, resumed("a", 4)], EVEN),
    "the other one died": ([*ALONE, resumed("b", 3)], EVEN),
    "both died, one with it": ([*BOTH, resumed("a", 3), resumed("b", 4)], EVEN),
    "promised, and nobody can tell": (ALONE, {**EVEN, "b": disk(open=[row("a", False)])}),
    "open on another link": (ALONE, {**EVEN, "a": disk(open=[row("c", True)])}),
    "open at a third one": (ALONE, {**EVEN, "c": disk(open=[row("b", True)])}),
    "no line was written for it": ([*ALONE, {"node": "b", "event": "log-lost", "count": 1}], EVEN),
    "used twice": ([*BOTH, A, GIVEN_A], EVEN),
    "taken back twice": (BOTH + BACK_A + BACK_A + BACK_B, EVEN),
    "never added": ([A, B, GIVEN_B], EVEN),
    "added twice": ([*BOTH, GIVEN_A], EVEN),
    "added otherwise": ([A, given("a", "b", 0.4), B, GIVEN_B], EVEN),
    "given too much": ([A, given("a", "b", 0.5, really=0.6), B, GIVEN_B], EVEN),
    "a checkpoint without it": ([A, resumed("a", 4), B, GIVEN_B], EVEN),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not_blamed(name: str) -> None:
    assert not audit_swaps(TOPOLOGY, *RIGHT[name]).problems


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_seen(name: str) -> None:
    assert audit_swaps(TOPOLOGY, *WRONG[name]).problems


@pytest.mark.parametrize("name", RIGHT)
def test_an_excuse_is_for_one_swap_only(name: str) -> None:
    """Another one of the same edge, at the same time, that one end alone has used."""
    lines, disks = RIGHT[name]
    disks = {edge: {**notes, "checkpoint": 9} for edge, notes in disks.items()}
    (problem,) = audit_swaps(TOPOLOGY, lines + ELSEWHERE, disks).problems[-1:]
    assert problem == "8: a used its link to c alone"


# Whole deployments, with faults.


def audited(seed: int, monkeypatch: pytest.MonkeyPatch) -> Found:
    """What the logs and disks of one history say, whatever the network's own checker thinks."""
    with monkeypatch.context() as patch:
        patch.setattr("twin_world.Checker.saved", lambda *_: None)
        patch.setattr("twin_world.Checker.calm", lambda _: None)
        shape = ("pair", "path", "ring")[seed % 3]
        world: TwinWorld = run_schedule(seed, shape, "mean-preserving")
    disks = {name: disk.found.agreement for name, disk in world.disks.items()}
    return audit_swaps(world.topology, world.past, disks)


@pytest.mark.usefixtures("cheap")
def test_faults_alone_are_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [audited(seed, monkeypatch) for seed in range(12)]
    assert not [problem for one in found for problem in one.problems]
    assert not any(one.open for one in found), "they ended by themselves"
    assert sum(one.both for one in found) > 50


def forgets(*lines: tuple[Standing, Input]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: (
        [patch.setitem(agreement.TABLE, line, (line[0], ())) for line in lines] and None
    )


def denies(patch: pytest.MonkeyPatch) -> None:
    answer = (Standing.SETTLED, (Do.ANSWER_ABORT,))
    patch.setitem(agreement.TABLE, (Standing.SETTLED, Input.ASKED), answer)


def leaves_alone(patch: pytest.MonkeyPatch) -> None:
    """Whoever has promised and hears COMMIT forgets its promise."""
    usual = Agreement._told

    def told(self: Agreement[Any], transaction: Any, word: Any, checkpoint: int) -> Any:
        if not transaction.coordinates and transaction.state is Standing.PREPARED:
            del self.open[transaction.peer, transaction.id]
            return []
        return usual(self, transaction, word, checkpoint)

    patch.setattr(Agreement, "_told", told)


def is_greedy(patch: pytest.MonkeyPatch) -> None:
    """One edge takes a little more than it gives."""
    usual = Flows._weight
    patch.setattr(
        Flows,
        "_weight",
        lambda self, *args: usual(self, *args) * (1.01 if self.me == "e00" else 1),
    )


def says_but_does_not(patch: pytest.MonkeyPatch) -> None:
    async def add(_self: Turns, _late: Change, model: Any) -> Any:
        return model

    patch.setattr(Turns, "_add", add)


def saves_without(patch: pytest.MonkeyPatch) -> None:
    """What is owed is in nobody's model when the checkpoint is written."""
    usual = Links.saved

    def saved(self: Links, period: int, checkpoint: int) -> None:
        self.agreement.owed.clear()
        usual(self, period, checkpoint)

    async def nothing(self: Turns) -> Any:
        return self.model

    patch.setattr(Turns, "_given", nothing)
    patch.setattr(Links, "saved", saved)


def decides_alone(patch: pytest.MonkeyPatch) -> None:
    """In doubt, it uses the link, and does not ask."""
    into = (Standing.COMMITTED, (Do.MAKE_GOOD, Do.PERSIST))
    patch.setitem(agreement.TABLE, (Standing.IN_DOUBT, Input.MET), into)
    patch.setitem(agreement.TABLE, (Standing.PREPARED, Input.MET), into)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "never takes back": forgets((Standing.COMMITTED, Input.ABORT)),
    "never asks the reborn": forgets((Standing.COMMITTED, Input.REBORN)),
    "never asks in doubt": forgets((Standing.PREPARED, Input.MET), (Standing.IN_DOUBT, Input.MET)),
    "denies what is settled": denies,
    "leaves the other alone": leaves_alone,
    "decides alone": decides_alone,
    "is greedy": is_greedy,
    "says but does not": says_but_does_not,
    "saves without": saves_without,
}


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_agreement_is_seen_among_faults(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of a deployment that ended by itself nothing may be open either."""
    MUTANTS[mutant](monkeypatch)
    for seed in range(HISTORIES):
        found = audited(seed, monkeypatch)
        if found.problems or found.open:
            return
    raise AssertionError(f"nothing was seen in {HISTORIES} histories")
