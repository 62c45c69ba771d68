"""The audit of deployments without rounds: what edges' logs say of their swaps.

Every end of a swap that is used says by how much a fixed linear function of its model moves, and
which checkpoint was the last that does not have it. So from the logs alone, and through deaths: a
swap is used by both ends or by neither, and what one end gives the other gets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from sdfeel.deploy.topology import Topology

End = tuple[str, str]  # an edge, and its neighbour
SLACK = 2.0  # seconds between the lines of two ends of a swap


@dataclass
class Swap:
    """By edge: what it did and undid, with the last checkpoint that does not have it."""

    ends: dict[End, list[tuple[int, bool, float | None]]] = field(default_factory=dict)
    first: float = 0.0
    last: float = 0.0

    def used(self, end: End) -> bool:
        return bool(self.ends.get(end)) and self.ends[end][-1][1]


def audit_swaps(
    topology: Topology,
    lines: list[dict[str, Any]],
    tolerance: float = 1e-4,
    until: float = math.inf,
    without: str = "",
) -> tuple[int, list[str]]:
    """How many swaps were looked at, and all that is wrong.

    until    of those after it the decision may not have come to both ends
    without  an edge of which nobody knows what it did
    """
    swaps: dict[int, Swap] = {}
    problems: list[str] = []
    blind: list[tuple[str, float, float]] = []  # who lost lines of its log, from when to when
    before: dict[str, float] = {}
    for line in sorted(lines, key=_when):
        event, node = line["event"], line["node"]
        if event == "log-lost":
            blind.append((node, before.get(node, 0.0), line["time"]))
        before[node] = line["time"]
        if event in ("swap", "taken-back", "resolved") and line["peer"] != without:
            swap = swaps.setdefault(line["ballot"], Swap(first=line["time"]))
            used = event == "swap" or bool(line.get("used"))
            swap.ends.setdefault((node, line["peer"]), []).append(
                (line["since"], used, line.get("moved"))
            )
            swap.last = line["time"]
        elif event == "resumed":
            _forget(swaps, node, line["checkpoint"])
        elif event == "fresh-start":
            _forget(swaps, node, 0)
        elif event == "given":
            off = line["after"] - line["before"] - line["moved"]
            if abs(off) > tolerance * (1 + abs(line["before"])):
                problems.append(f"{node} was given {line['moved']} and moved by {off} more")
    checked = 0
    for ballot, swap in swaps.items():
        both = {name for end in swap.ends for name in end}
        lost = any(
            name in both and start - SLACK <= swap.last and swap.first <= end + SLACK
            for name, start, end in blind
        )
        if swap.last < until and not lost:
            checked += _look(topology, ballot, swap, tolerance, problems)
    return checked, problems


def _when(line: dict[str, Any]) -> float:
    """A line that tells of lost ones is made after the one that it stands before."""
    return float(line["time"]) - (0.01 if line["event"] == "log-lost" else 0.0)


def _forget(swaps: dict[int, Swap], node: str, checkpoint: int) -> None:
    """What came after the checkpoint that an edge goes on from died with it."""
    for swap in swaps.values():
        for end, told in swap.ends.items():
            if end[0] == node:
                told[:] = [one for one in told if one[0] < checkpoint]


def _look(
    topology: Topology, ballot: int, swap: Swap, tolerance: float, problems: list[str]
) -> bool:
    for node, peer in list(swap.ends):
        if swap.used((node, peer)) and not swap.used((peer, node)):
            problems.append(f"{ballot}: {node} used its link to {peer} alone")
            return True
    flows = [
        topology.share(end[0]) * told[-1][2]
        for end, told in swap.ends.items()
        if told and told[-1][1] and told[-1][2] is not None
    ]
    if len(flows) == 2 and abs(sum(flows)) > tolerance * (1 + abs(flows[0])):
        problems.append(f"{ballot}: the ends moved by {flows}")
    return len(flows) == 2
