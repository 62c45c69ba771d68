"""How much of its speed a deployment keeps while nodes of it fail.

    python benchmarks/chaos.py --edges 4 --clients 8 --every 10 --seconds 600

So many edges on a ring and clients run as processes of this machine, with mutual TLS. Each client
trains a small model and sleeps for DELAY in each period, in the place of a longer computation, so
that the cores of the machine decide little. A calm stretch (a fifth of `--seconds`, 30 s or more)
comes first. Then, for `--seconds`, one node drawn by `--seed` fails every `--every` seconds: it is
killed (SIGKILL) or stopped (SIGTERM) and started again, or frozen (SIGSTOP) for some seconds. The
clients of an edge that is gone go to another one until it is back; `--no-fallbacks`: they wait.

Prints one JSON object:

goodput_uploads  uploads that edges accepted a second in chaos, over those a second in the calm
goodput_periods  the same of edges' periods in which a client of any edge took part
empty_periods    edges' periods in chaos in which none of their clients took part
violations       texts: nodes that ended by themselves or with another status than they should,
                 tracebacks, models that are not finite, an exchange that did not keep the weighted
                 mean (by the edges' logs), edges that make no period once there is calm again

Its exit status is 1 if there are violations.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deployment import toy
from deployment.mean_audit import audit
from deployment.members import members, write_deployment
from deployment.nodes import Nodes
from sdfeel.deploy.model.store import Store
from sdfeel.deploy.topology import Topology
from sdfeel.errors import RunError

VALUES = 1_000  # of the model
DELAY = 0.3  # seconds of a client's computing in a period
DEADLINES = {"round": 15.0, "exchange": 25.0, "ping": 3.0, "home": 10.0}  # seconds
PERIODS = 10_000_000  # more than there is time for
LEAST_CALM = 30.0
STARTED = 120.0  # seconds within which all clients must take part for the first time
RECOVERED = 60.0  # seconds within which every edge must make periods again after the chaos
SETTLED = 3  # periods of every edge before the calm begins
STOPPED = 30.0  # seconds that a node has to end after SIGTERM
RESTART = 1.0  # seconds between the end of a node and its next start
FROZEN = (2.0, 5.0)  # seconds
GRACEFUL = (0, 130)  # exit statuses of a node that was told to stop
KINDS = ("kill", "freeze", "stop")

Line = Mapping[str, Any]


@dataclass
class Away:
    """A node that was harmed: how, since when, and when it is to be brought back."""

    kind: str
    since: float
    due: float | None  # None while a node that was told to stop has not ended


@dataclass
class Chaos:
    """Harms nodes and brings them back; `tick` is called again and again."""

    nodes: Nodes
    random: random.Random
    every: float
    away: dict[str, Away] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    ended: set[str] = field(default_factory=set)  # killed or stopped at least once
    violations: list[str] = field(default_factory=list)
    coming: list[str] = field(default_factory=list)  # kinds: each once before one comes again

    def run(self, seconds: float) -> None:
        """Harm a node every `every` seconds for so long, then bring back all of them."""
        start = now = time.monotonic()
        strike = start + self.every
        while now < start + seconds:
            if now >= strike:
                self.harm()
                strike += self.every
            self.tick()
            time.sleep(0.05)
            now = time.monotonic()
        while self.away:
            self.tick()
            time.sleep(0.05)

    def harm(self) -> None:
        """Let a random node fail, of those that are well."""
        well = [name for name in self.nodes.roles if name not in self.away]
        if not well:
            return
        if not self.coming:
            self.coming = self.random.sample(KINDS, len(KINDS))
        name, kind, now = self.random.choice(well), self.coming.pop(), time.monotonic()
        self.faults[kind] += 1
        print(f"{kind} {name}", file=sys.stderr)
        if kind == "freeze":
            self.nodes.signal(name, signal.SIGSTOP)
            self.away[name] = Away(kind, now, now + self.random.uniform(*FROZEN))
            return
        self.ended.add(name)
        self.nodes.signal(name, signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        self.away[name] = Away(kind, now, None)

    def tick(self) -> None:
        """Bring back whom it is time for, and look for nodes that ended by themselves."""
        now = time.monotonic()
        for name, away in list(self.away.items()):
            if away.due is None:
                self._await_end(name, away, now)
            elif now >= away.due:
                del self.away[name]
                if away.kind == "freeze":
                    self.nodes.signal(name, signal.SIGCONT)
                else:
                    self.nodes.start(name)
        for name in self.nodes.roles:
            status = self.nodes.status(name)
            if name not in self.away and status is not None:
                self.violations.append(f"{name} ended by itself with status {status}")
                self.ended.add(name)
                self.away[name] = Away("itself", now, now + RESTART)

    def _await_end(self, name: str, away: Away, now: float) -> None:
        """Look whether a node that was killed or told to stop has ended, and how."""
        status = self.nodes.status(name)
        if status is None and now > away.since + STOPPED:
            self.violations.append(f"{name} did not end within {STOPPED:g} s of SIGTERM")
            self.nodes.signal(name, signal.SIGKILL)
            status = self.nodes.processes[name].wait()
        elif status is not None:
            expected = (-signal.SIGKILL,) if away.kind == "kill" else GRACEFUL
            if status not in expected:
                self.violations.append(f"{name} ended with status {status} after {away.kind}")
        if status is not None:
            away.due = now + RESTART


def period_lines(lines: Iterable[Line]) -> list[Line]:
    """Return the period lines of edges by time; one that was made again counts once."""
    first: dict[tuple[str, int], Line] = {}
    for line in sorted(lines, key=lambda line: line["time"]):
        if line["event"] == "period":
            first.setdefault((line["node"], line["period"]), line)
    return list(first.values())


def summary(periods: Sequence[Line], start: float, end: float) -> dict[str, Any]:
    """What edges did between two moments, from the lines of all their periods."""
    somebody = {line["period"] for line in periods if line["participants"]}
    inside = [line for line in periods if start <= line["time"] < end]
    uploads = [line["time"] for line in inside for _ in line["participants"]]
    edges = {line["node"] for line in periods}
    by_edge = [[line["time"] for line in inside if line["node"] == edge] for edge in edges]
    return {
        "seconds": round(end - start, 1),
        "uploads": len(uploads),
        "uploads_per_second": len(uploads) / (end - start),
        "periods_per_second": sum(x["period"] in somebody for x in inside) / (end - start),
        "periods": len(inside),
        "empty_periods": sum(not line["participants"] for line in inside),
        "empty_in_network": len({line["period"] for line in inside} - somebody),
        "longest_gap": longest_gap([start, *uploads, end]),
        "longest_gap_of_an_edge": max(longest_gap([start, *times, end]) for times in by_edge),
    }


def longest_gap(times: Sequence[float]) -> float:
    """Return the seconds of the longest wait for the next of some moments."""
    return round(float(np.diff(times).max()), 2)


def wait_for_periods(
    nodes: Nodes, chaos: Chaos, seconds: float, count: int, everybody: bool
) -> list[str]:
    """Wait until every edge has made so many periods more; return those that did not in time.

    Args:
        everybody: count only periods in which all clients of the edge took part.
    """
    since, end = time.time(), time.monotonic() + seconds
    homes = [client.edge for client in nodes.deployment.clients]
    least = {edge: homes.count(edge) if everybody else 0 for edge in nodes.edges}
    missing = list(nodes.edges)
    while missing and time.monotonic() < end:
        chaos.tick()
        time.sleep(0.5)
        lines = [line for line in nodes.lines_of_edges() if line["time"] >= since]
        done = [
            line["node"]
            for line in period_lines(lines)
            if len(line["participants"]) >= least[line["node"]]
        ]
        missing = [edge for edge in nodes.edges if done.count(edge) < count]
    return missing


def judge(nodes: Nodes, chaos: Chaos, stopped: float) -> list[str]:
    """What logs and disks say, after all nodes were told to stop at the moment `stopped`."""
    problems = []
    for name in nodes.roles:
        status = nodes.status(name)
        if status not in GRACEFUL:
            problems.append(f"{name} ended with status {status} when it was told to stop")
        for log in nodes.logs.glob(f"{name}.*"):
            if "Traceback" in (text := log.read_text(encoding="utf-8", errors="replace")):
                last = text[text.rindex("Traceback") :].strip().splitlines()
                problems.append(f"{log.name} has a traceback: {last[-1][:300]}")
    for edge in nodes.edges:
        store = Store(nodes.deployment.folder / "state" / edge, {"edge": edge})
        checkpoint, _ = store.load(None)
        if checkpoint is None or not np.isfinite(checkpoint.model.array()).all():
            problems.append(f"{edge} has no finite model on its disk")
    # An exchange that the end of all interrupted says nothing: whole periods are looked at.
    lines = nodes.lines_of_edges()
    done = dict.fromkeys(nodes.edges, 0)
    for line in lines:
        if line["event"] == "period" and line["time"] < stopped:
            done[line["node"]] = line["period"]
    whole = [x for x in lines if x["event"] != "exchange" or x["period"] <= min(done.values())]
    checked, broken = audit(Topology(nodes.deployment), whole, 1e-4, sorted(chaos.ended))
    if not checked:
        problems.append("there was no exchange to look at")
    return problems + broken


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Carry it all out, and return the object that is printed."""
    sizes = [len(part) for part in np.array_split(np.arange(options.clients), options.edges)]
    table = {
        "name": "chaos",
        "audit": True,
        "schedule": {"iterations": PERIODS},
        "graph": {"kind": "ring" if options.edges > 2 else "path"},
        "deadlines": DEADLINES,
        "local": {"options": {"delay": DELAY, "size": VALUES}},
        **members(sizes, fallback=not options.no_fallbacks),
    }
    file, deployment = write_deployment(folder, table, Path(toy.__file__), np.zeros(VALUES))
    with Nodes(file, deployment) as nodes:
        chaos = Chaos(nodes, random.Random(options.seed), options.every)  # noqa: S311
        if slow := wait_for_periods(nodes, chaos, STARTED, SETTLED, everybody=True):
            raise RunError(f"{', '.join(slow)} did not start within {STARTED:g} s")
        load = os.getloadavg()[0]
        calm_begins = time.time()
        calm = max(LEAST_CALM, options.seconds / 5)
        print(f"{calm:g} s of calm", file=sys.stderr)
        until = time.monotonic() + calm
        while time.monotonic() < until:
            chaos.tick()
            time.sleep(0.2)
        chaos_begins = time.time()
        chaos.run(options.seconds)
        # The nodes that were brought back last may take longer: that is no part of the chaos.
        chaos_ends = min(time.time(), chaos_begins + options.seconds)
        gone = wait_for_periods(nodes, chaos, RECOVERED, 1, everybody=False)
        stopped = time.time()
    violations = chaos.violations + judge(nodes, chaos, stopped)
    violations += [f"{edge} made no period within {RECOVERED:g} s of the chaos" for edge in gone]
    periods = period_lines(nodes.lines_of_edges())
    before = summary(periods, calm_begins, chaos_begins)
    after = summary(periods, chaos_begins, chaos_ends)
    return {
        "goodput_uploads": ratio(after, before, "uploads_per_second"),
        "goodput_periods": ratio(after, before, "periods_per_second"),
        "empty_periods": after["empty_periods"],
        "violations": violations,
        "faults": chaos.faults,
        "calm": rounded(before),
        "chaos": rounded(after),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "seed": options.seed,
    }


def ratio(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> float | None:
    """Return how many times the one is of the other; None if the other is nothing."""
    return round(one[key] / other[key], 3) if other[key] else None


def rounded(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same with fewer digits."""
    return {key: round(value, 3) for key, value in numbers.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=int, default=4)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two faults")
    parser.add_argument("--seconds", type=float, default=600.0, help="of chaos")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--no-fallbacks", action="store_true", help="clients of a lost edge wait until it is back"
    )
    options = parser.parse_args()
    if not 2 <= options.edges <= min(26, options.clients):
        parser.error("--edges: two or more, and no more than 26 or than there are clients")
    if not (options.every > 0 and options.seconds > 0):
        parser.error("--every and --seconds: above 0")
    # Told to end, it ends as by Ctrl-C: with all that it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="sdfeel-chaos-") as folder:
        try:
            found = measure(Path(folder), options)
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
    print(json.dumps(found, indent=2))
    return 1 if found["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
