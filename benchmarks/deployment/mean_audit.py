"""The audit of deployments with rounds: whether exchanges kept the weighted mean, by edges' logs.

It needs `audit = true` in the deployment file: then every edge writes what a fixed linear function
of its model was before each exchange and after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx

from sdfeel.deploy.topology import Topology

__all__ = ["audit"]

Lines = list[dict[str, Any]]
Exchanges = dict[tuple[int, int], dict[str, Lines]]


def audit(
    topology: Topology, lines: Lines, tolerance: float, died: Sequence[str]
) -> tuple[int, list[str]]:
    """How many parts of the network were looked at, and all that is wrong."""
    lines = sorted(lines, key=lambda line: line["time"])
    late = {(line["node"], tuple(line["key"])) for line in lines if line["event"] == "undecided"}
    corrected, checked = corrections(lines), 0
    lost = [line for line in lines if line["event"] == "log-lost"]
    problems = [f"{line['node']} lost {line['count']} lines of its log" for line in lost]
    for key, edges in survivors(lines).items():
        again = {name for name, found in edges.items() if len(found) > 1}
        if not again <= set(died):
            problems.append(f"{key}: {again} did an exchange twice")
        excused = again | {name for name in edges if (name, key) in late}
        excused |= set(died) - set(edges)
        used = {(n, peer) for n, found in edges.items() for line in found for peer in line["used"]}
        graph = nx.Graph(used)
        graph.add_nodes_from(edges)
        later = corrected.get(key, {})
        used = {ends for ends in {*used, *later} if later.get(ends, True)}
        for name, peer in used:
            if (peer, name) not in used and not {name, peer} & excused:
                problems.append(f"{key}: {name} used its link to {peer} alone")
        excused |= {name for name, _ in later}  # its line does not have it
        for part in nx.connected_components(graph):
            if part & excused or not part <= edges.keys():
                continue
            checked += 1
            before = sum(topology.at(0).share(name) * edges[name][0]["before"] for name in part)
            after = sum(topology.at(0).share(name) * edges[name][0]["after"] for name in part)
            scale = 1 + max(abs(edges[name][0]["before"]) for name in part)
            if abs(after - before) > tolerance * scale:
                problems.append(f"{key}: {before} -> {after}")
    return checked, problems


def survivors(lines: Lines) -> Exchanges:
    """The exchanges that are in somebody's model: what an edge did after the checkpoint that it
    resumed from died with it.
    """
    exchanges: Exchanges = {}
    for line in lines:
        if line["event"] == "exchange":
            key = (line["period"], line["exchange"])
            found = exchanges.setdefault(key, {}).setdefault(line["node"], [])
            if found and not found[-1]["used"]:
                found.pop()  # a period in which nobody took part is begun again
            found.append(line)
        elif line["event"] in ("resumed", "fresh-start"):
            last = line.get("period", 0)
            for key in [key for key in exchanges if key[0] > last]:
                exchanges[key].pop(line["node"], None)
    return exchanges


def corrections(lines: Lines) -> dict[tuple[int, int], dict[tuple[str, str], bool]]:
    """By exchange: whether an edge has used its link to a peer, as it turned out later."""
    found: dict[tuple[int, int], dict[tuple[str, str], bool]] = {}
    for line in lines:
        if line["event"] in ("taken-back", "resolved"):
            period, exchange = line["key"]
            ends = (line["node"], line["peer"])
            found.setdefault((period, exchange), {})[ends] = line.get("used", False)
    return found
