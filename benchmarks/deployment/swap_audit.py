"""The audit of deployments without rounds: what edges' logs and disks say of their swaps.

Every end of a swap says by how much a fixed linear function of its model is to move when it uses it
(`swap`, `resolved`) and when it takes it back (`taken-back`), and which checkpoint was the last
that does not have it; `given` says by how much the model then did move. So, through deaths and
without looking at a clock:

- what an end used is added to its model once, before its next checkpoint
- a swap is used by both ends or by neither
- what one end gives the other gets

Lines of one edge stand in their order, and none is missing: a line that cannot be written waits in
the edge, and `log-lost`, should there ever be one, is a problem by itself. So all that is left to
excuse is named by the disks:

- what an edge did after the checkpoint that it goes on from died with it: `resumed` names the
  checkpoint, and the last one on its disk is what the edge would go on from now
- a swap that only one end has used by then is still to be settled, and one of the two disks says
  so: it is open there as used (that end will ask, and take it back), or as promised (that end will
  ask and add it, if the other's disk has it to tell)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sdfeel.algorithm.paces.asynchronous import Asynchronous
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.store import Store
from sdfeel.deploy.topology import Topology

__all__ = ["Found", "audit_swaps", "links_on_disk"]

Line = Mapping[str, Any]
Name = tuple[str, int]  # a swap as an end calls it: the neighbour and the ballot
TOLERANCE = 1e-5


class Step(NamedTuple):
    """One thing that an end did: `since` is the last checkpoint that does not have it."""

    since: int
    used: bool
    moved: float


def links_on_disk(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """What the last checkpoint of each edge here says of its links."""
    found = {}
    for edge in deployment.edges:
        last, _ = Store(deployment.folder / "state" / edge.name, {"edge": edge.name}).load(None)
        found[edge.name] = last.agreement if last is not None else {}
    return found


@dataclass
class Found:
    """What there is to say: swaps that both ends have used, and those that are not settled yet."""

    both: int = 0
    open: int = 0
    problems: list[str] = field(default_factory=list)


def audit_swaps(
    topology: Topology,
    lines: Sequence[Line],
    disks: Mapping[str, Mapping[str, Any]],
    tolerance: float = TOLERANCE,
) -> Found:
    """All that is wrong with the swaps of the edges whose logs are here.

    lines  of all edges; those of one edge in the order in which it made them
    disks  by edge, what the last checkpoint says of its agreement; {}: there is none
    """
    found = Found()
    books = {
        name: _Book(name, topology, found.problems, tolerance) for name in topology.at(0).edges
    }
    for line in lines:
        books[line["node"]].read(line)
    for name, book in books.items():
        book.end_with(int(disks.get(name, {}).get("checkpoint", 0)))
    for name, book in books.items():
        for (peer, ballot), steps in book.steps.items():
            other = books[peer].steps.get((name, ballot), [])
            if not _is_used(steps) or (_is_used(other) and name > peer):
                continue  # unused; or seen from the other end
            ends = {name: steps, peer: other}
            if _is_used(other):
                found.both += 1
                _compare(topology, ballot, ends, tolerance, found.problems)
            elif _is_open(disks, name, peer, ballot):
                found.open += 1
            else:
                found.problems.append(f"{ballot}: {name} used its link to {peer} alone")
    return found


def _is_used(steps: list[Step]) -> bool:
    return bool(steps) and steps[-1].used


def _compare(
    topology: Topology,
    ballot: int,
    ends: Mapping[str, list[Step]],
    tolerance: float,
    problems: list[str],
) -> None:
    flows = [
        topology.at(0).share(name) * sum(s.moved for s in steps) for name, steps in ends.items()
    ]
    if abs(sum(flows)) > tolerance * (1 + abs(flows[0])):
        problems.append(f"{ballot}: the ends {sorted(ends)} moved the mean by {sum(flows)}")


def _is_open(disks: Mapping[str, Mapping[str, Any]], name: str, peer: str, ballot: int) -> bool:
    """Whether a swap that `name` alone has used will be settled when the two meet again."""
    mine, theirs = disks.get(name, {}), disks.get(peer, {})

    def held(notes: Mapping[str, Any], by: str, used: bool) -> bool:
        rows = notes.get("open", ())
        return any((r["peer"], r["id"][2], r["used"]) == (by, ballot, used) for r in rows)

    settled = any((row[0], row[3]) == (peer, ballot) for row in mine.get("settled", ()))
    return held(mine, peer, True) or (settled and held(theirs, name, False))


class _Book:
    """What one edge did and undid, by swap, as its model has it."""

    def __init__(
        self, name: str, topology: Topology, problems: list[str], tolerance: float
    ) -> None:
        self.name, self._problems, self._tolerance = name, problems, tolerance
        self.steps: dict[Name, list[Step]] = {}
        self._due: deque[tuple[str, Step]] = deque()  # used, and not yet added to the model
        pace = topology.deployment.pace
        # By stale weights an edge moves alone, and nothing is agreed on.
        self._is_alone = isinstance(pace, Asynchronous) and pace.mixing == "stale-weights"

    def read(self, line: Line) -> None:
        event = line["event"]
        if event == "swap" or (event == "resolved" and line["used"]):
            self._note(line, used=True)
        elif event == "taken-back":
            self._note(line, used=False)
        elif event == "given" and not self._is_alone:
            self._given(line)
        elif event in ("resumed", "fresh-start"):
            self.end_with(line.get("checkpoint", 0))
        elif event == "log-lost":
            self._wrong(f"lost {line['count']} lines of its log: nobody can tell what it did")

    def _wrong(self, what: str) -> None:
        self._problems.append(f"{self.name} {what}")

    def _note(self, line: Line, used: bool) -> None:
        peer, ballot, moved = line["peer"], line["ballot"], line["moved"]
        steps = self.steps.setdefault((peer, ballot), [])
        if _is_used(steps) == used:
            self._wrong(f"{'used' if used else 'took back'} {ballot} of {peer} twice")
        steps.append(Step(line["since"], used, moved))
        self._due.append((peer, steps[-1]))

    def _given(self, line: Line) -> None:
        count = len(line["peers"])
        taken = [self._due.popleft() for _ in range(min(count, len(self._due)))]
        if [peer for peer, _ in taken] != line["peers"]:
            self._wrong(f"was given something by {line['peers']} that no swap is about")
        told, off = line["moved"], line["after"] - line["before"] - line["moved"]
        for name, wrong in (
            ("agreed on", told - sum(step.moved for _, step in taken)),
            ("was given", off),
        ):
            if abs(wrong) > self._tolerance * (1 + abs(line["before"])):
                self._wrong(f"moved by {wrong} more than it {name}")

    def end_with(self, checkpoint: int) -> None:
        """It goes on from this checkpoint: what came later died."""
        if any(step.since < checkpoint for _, step in self._due):
            self._wrong(f"wrote checkpoint {checkpoint} without what it had used before")
        self._due.clear()
        for steps in self.steps.values():
            steps[:] = [step for step in steps if step.since < checkpoint]
