"""Chaos, seeded: a deployment of real processes with mutual TLS, to which everything happens.

    python benchmarks/soak.py --seconds 3600 --seed 1

Four honest edges and twelve clients are killed, frozen and cut off; their disks refuse to be
written, their certificates run out and are renewed; a fifth edge lies all the time, and a client
floods its edge. One edge is never killed: its memory must stay flat. At the end there is calm for a
while. Prints one JSON object; its `violations` say

- what was acknowledged and is gone, and which node ended by itself or ended early
- an exchange that did not keep the weighted mean, by the logs of the edges
- edges that do not come within tolerance of each other
- memory that grew

and its exit status is 1 if there is one. `--pace asynchronous` does the same to edges that wait for
no other cluster: then every swap is looked at in the place of exchanges, and instead of agreeing
all edges must go on making turns. `--stretch 5` makes all deadlines five times as long, for a
machine that is so busy that nobody would answer in time. `--report FILE` also writes it as a page,
`--logs FOLDER` keeps the logs of all nodes.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from deployment import toy
from deployment.mean_audit import audit
from deployment.members import members, write_deployment
from deployment.nodes import Nodes
from deployment.swap_audit import audit_swaps, links_on_disk
from processes import free_ports, memory
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.store import read_safetensors
from sdfeel.deploy.model.vectors import distance
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust import authority
from sdfeel.deploy.trust.provision import provision
from sdfeel.errors import InputError
from soak_enemies import Enemies

TOLERANCE = 0.05
CALM = 90.0
STARTED = 300.0  # seconds, within which all edges must have begun
PERIODS = 10_000_000
LIAR, WITNESS = "e", "a"
FLOODERS = {"synchronous": "c12", "asynchronous": "c11"}  # a guest, where there are guests
TURNS = 5  # that an edge without rounds must make when there is calm
LEFT = 90.0  # seconds that certificates are good for
RENEWED = 20.0  # seconds after which they are
AVERAGERS = ("metropolis", "all-reduce")  # by an even and an odd seed
KINDS = ("kill", "stop", "cut", "disk", "certificate")


def make(folder: Path, averager: str, pace: str, stretch: float) -> tuple[Path, Deployment]:
    """Five edges on a ring with a chord, everybody behind a proxy; the last one lies."""
    seconds = {"round": 2.0, "exchange": 3.0, "ping": 0.7, "retry": 0.1, "home": 2.0}
    ring = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "e"), ("a", "c")]
    table: dict[str, Any] = {
        "name": "test",
        "audit": True,
        "schedule": {"iterations": 2 * PERIODS, "tau1": 2},
        "graph": {"links": ring},
        "deadlines": {name: stretch * own for name, own in seconds.items()},
        "local": {"options": {"delay": 0.05}},
        **members((2, 3, 4, 3, 1), fallback=pace == "synchronous"),
    }
    if pace == "asynchronous":
        turns = [stretch * seconds for seconds in (0.3, 0.2, 0.4, 0.25, 0.3)]
        table["pace"] = {"name": pace, "deadline": turns}
    else:
        table["schedule"] |= {"alpha": 12, "averager": averager}
    for edge, port in zip(table["edges"], free_ports(len(table["edges"])), strict=True):
        edge["listen"] = f"127.0.0.1:{port}"
    return write_deployment(folder, table, Path(toy.__file__), np.zeros(toy.SIZE))


def renew(deployment: Deployment, name: str) -> None:
    """Give a node a certificate of an hour, of which all but the last seconds have passed."""
    made = datetime.now(UTC) - timedelta(seconds=3600 - LEFT)
    with mock.patch.object(authority, "_now", return_value=made):
        provision(deployment, 1, only=name)


class Chaos:
    """The honest nodes, and what is done to them."""

    def __init__(self, folder: Path, seed: int, pace: str, stretch: float) -> None:
        self.random = random.Random(seed)  # noqa: S311 - chaos, not secrets
        file, self.deployment = make(folder, AVERAGERS[seed % 2], pace, stretch)
        self.flooder = FLOODERS[pace]
        guests = [client.name for client in self.deployment.clients if client.edge == LIAR]
        self.nodes = Nodes(file, self.deployment, without=[LIAR, self.flooder, *guests])
        self.roles = self.nodes.roles
        self.enemies = Enemies(self.deployment, LIAR, self.flooder)
        self.counts = dict.fromkeys(KINDS, 0)
        self.excused: set[str] = set()  # who may have used a link without a line in its log
        self.due: list[tuple[float, str, str]] = []
        self.violations: list[str] = []
        self.memory: list[float] = []
        self._renewed = 0.0

    def begin(self) -> None:
        """Until every edge has something to lose, however busy the machine is."""
        end = time.monotonic() + STARTED
        while not all(on_disk(self)) and time.monotonic() < end:
            self._renew(time.monotonic())
            time.sleep(0.2)

    def run(self, seconds: float) -> None:
        """Something happens every second or so; nobody stays away for good."""
        self.begin()
        start = time.monotonic()
        next_blow, next_look = start + 5, start
        while time.monotonic() < start + seconds:
            now = time.monotonic()
            for item in [item for item in self.due if item[0] <= now]:
                self.due.remove(item)
                self._bring_back(item[1], item[2])
            if now >= next_blow:
                self._strike(now)
                next_blow = now + self.random.uniform(0.5, 4.0)
            if now >= next_look:
                self._look()
                next_look = now + 2.0
            self._renew(now)
            time.sleep(0.02)
        for _, name, how in self.due:
            self._bring_back(name, how)
        self.due.clear()

    def _renew(self, now: float) -> None:
        """All but those whose certificate is to run out."""
        if now - self._renewed < RENEWED:
            return
        self._renewed = now
        out = {name for _, name, how in self.due if how == "certificate"}
        for name in [*self.roles, LIAR, self.flooder]:
            if name not in out:
                renew(self.deployment, name)

    def _strike(self, now: float) -> None:
        away = {name for _, name, _ in self.due}
        free = [name for name in self.roles if name not in away]
        absent = [name for _, name, how in self.due if how not in ("disk", "certificate")]
        if len(absent) > len(self.roles) // 3 or not free:
            return
        edges = [name for name in free if self.roles[name] == "edge"]
        name = self.random.choice(edges if edges and self.random.random() < 0.5 else free)
        how = self.random.choice(KINDS if self.random.random() < 0.5 else KINDS[:-1])
        if how in ("cut", "disk") and self.roles[name] != "edge":
            how = "kill"
        if how == "kill" and name == WITNESS:
            how = "stop"
        self.counts[how] += 1
        if how == "kill":
            self.excused.add(name)
            self.nodes.signal(name, signal.SIGKILL)
        elif how == "stop":
            self.nodes.signal(name, signal.SIGSTOP)
        elif how == "cut":
            self.enemies.cut(name)
        elif how == "disk":
            self.excused.add(name)
            self._limit_files(name, 1)
        longest = 1.5 * LEFT if how == "certificate" else 5.0
        self.due.append((now + self.random.uniform(0.1, longest), name, how))

    def _limit_files(self, name: str, most: int) -> None:
        """Nothing that the process writes may become larger, as if the disk were full."""
        hard = resource.RLIM_INFINITY
        if self.nodes.status(name) is None:
            pid = self.nodes.processes[name].pid
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, hard))

    def _bring_back(self, name: str, how: str) -> None:
        if how == "kill":
            self.nodes.processes[name].wait()
            self.nodes.start(name)
        elif how == "stop":
            self.nodes.signal(name, signal.SIGCONT)
        elif how == "cut":
            self.enemies.mend(name)
        elif how == "disk":
            self._limit_files(name, resource.RLIM_INFINITY)
        else:
            renew(self.deployment, name)

    def _look(self) -> None:
        """Nobody ends by itself, and the witness does not grow."""
        dead = {name for _, name, how in self.due if how == "kill"}
        for name in self.roles:
            if name not in dead and (status := self.nodes.status(name)) is not None:
                self.violations.append(f"{name} ended by itself with status {status}")
                self.nodes.start(name)
        self.memory.append(memory(self.nodes.processes[WITNESS].pid) / 2**20)

    def stop(self) -> None:
        """End all nodes at once: told to stop, and given no time for it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for name in self.nodes.processes:
                self.nodes.signal(name, number)


def lost_periods(chaos: Chaos) -> list[str]:
    """Periods that were acknowledged and are gone after a restart."""
    lost = []
    for name in chaos.nodes.edges:
        done = 0
        for line in chaos.nodes.lines(name):
            if line["event"] == "period":
                done = line["period"]
            elif line["event"] == "fresh-start" and done:
                lost.append(f"{name} began anew after period {done}")
            elif line["event"] == "resumed" and line["period"] < done:
                lost.append(f"{name} resumed at {line['period']} after {done}")
            elif line["event"] == "finished":
                lost.append(f"{name} ended at period {done} of {PERIODS}")
    return lost


def on_disk(chaos: Chaos) -> list[dict[int, Path]]:
    """Period -> checkpoint, of every honest edge."""
    models = []
    for name in chaos.nodes.edges:
        folder = chaos.deployment.folder / "state" / name
        models.append({int(p.stem[7:]): p for p in folder.glob("period-*.safetensors")})
    return models


def disagreement(chaos: Chaos, since: int) -> tuple[int, float]:
    """The last period that all honest edges have on disk, and how far apart they are in it.

    since  older ones, which their histories may share as well, say nothing about now
    """
    models = on_disk(chaos)
    common = {n for n in set.intersection(*(set(found) for found in models)) if n >= since}
    if not common:
        return 0, float("inf")
    period = max(common)
    try:
        vectors = [read_safetensors(found[period])[0] for found in models]
    except InputError:  # replaced by a newer one meanwhile
        return 0, float("inf")
    return period, max(distance(a, b) for a in vectors for b in vectors)


def go_on(chaos: Chaos) -> tuple[int, float]:
    """Calm, without rounds: until every edge has made some turns, and all that was still open
    between them has been settled; the least turn that one is at.
    """
    end = time.monotonic() + CALM
    before = [max(found, default=0) for found in on_disk(chaos)]
    while time.monotonic() < end:
        now = [max(found, default=0) for found in on_disk(chaos)]
        if all(new >= old + TURNS for new, old in zip(now, before, strict=True)):
            break
        chaos._renew(time.monotonic())
        time.sleep(0.2)
    else:
        return min(before), float("inf")
    left = still_open(chaos)
    while left and time.monotonic() < end:
        chaos._renew(time.monotonic())
        time.sleep(0.2)
        left &= still_open(chaos)
    chaos.violations += [f"{edge} never settled {id_} with {peer}" for edge, peer, id_ in left]
    return min(now), 0.0


def still_open(chaos: Chaos) -> set[tuple[str, str, tuple[int, ...]]]:
    """By the disks of honest edges: edge, neighbour, and what is not settled between them."""
    disks = links_on_disk(chaos.deployment)
    rows = [(name, row) for name in chaos.nodes.edges for row in disks[name].get("open", ())]
    return {(name, row["peer"], tuple(row["id"])) for name, row in rows if row["peer"] != LIAR}


def settle(chaos: Chaos) -> tuple[int, float]:
    """Calm: until the edges agree, or for a while."""
    if chaos.deployment.most_steps:
        return go_on(chaos)
    end = time.monotonic() + CALM
    since = max((max(found, default=0) for found in on_disk(chaos)), default=0)
    period, apart = disagreement(chaos, since)
    while apart > TOLERANCE and time.monotonic() < end:
        chaos._renew(time.monotonic())
        time.sleep(0.2)
        period, apart = disagreement(chaos, since)
    return period, apart


def judge(chaos: Chaos, period: int, apart: float) -> dict[str, Any]:
    """What the logs say."""
    lines = chaos.nodes.lines_of_edges()
    violations = [*chaos.violations, *lost_periods(chaos)]
    # The liar is excused: nobody knows what it did.
    died = [*sorted(chaos.excused), LIAR]
    topology = Topology(chaos.deployment)
    if chaos.deployment.most_steps:
        found = audit_swaps(topology, lines, links_on_disk(chaos.deployment))
        checked, problems, open_ = found.both, found.problems, found.open
    else:
        checked, problems = audit(topology, lines, 1e-4, died)
        open_ = 0
    violations += problems
    if apart > TOLERANCE:
        violations.append(f"the edges are {apart} apart")
    early, late = _quarters(chaos.memory)
    if late > 1.2 * early + 10:
        violations.append(f"the memory of {WITNESS} grew from {early:.0f} to {late:.0f} MB")
    events = (
        "jump", "taken-back", "repaired", "undecided", "refused", "peer-refused", "missed",
        "deadline", "disk-problem", "disk-relief", "log-relief", "log-lost", "client-replaced",
        "handshake-refused",
    )  # fmt: skip
    return {
        "violations": violations,
        "strikes": chaos.counts,
        "enemies": chaos.enemies.counts,
        "period": period,
        "exchanges_checked": checked,
        "open_at_the_end": open_,
        "largest_disagreement": apart,
        "memory_mb": [round(early, 1), round(late, 1)],
        "events": {e: sum(line["event"] == e for line in lines) for e in events},
    }


def _quarters(values: list[float]) -> tuple[float, float]:
    """The medians of the second quarter and of the last: at the start everything grows."""
    part = max(1, len(values) // 4)
    second, last = sorted(values[part : 2 * part] or values), sorted(values[-part:])
    return second[len(second) // 2], last[len(last) // 2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pace", choices=sorted(FLOODERS), default="synchronous")
    parser.add_argument("--stretch", type=float, default=1.0)
    parser.add_argument("--report", type=Path, default=None)
    parser.add_argument("--logs", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sdfeel-soak-") as folder:
        chaos = Chaos(Path(folder), options.seed, options.pace, options.stretch)
        try:
            with chaos.nodes:
                chaos.run(options.seconds)
                agreed = settle(chaos)
                chaos.stop()
        finally:
            chaos.enemies.stop()
        found = judge(chaos, *agreed)
        if options.logs is not None:
            options.logs.mkdir(parents=True, exist_ok=True)
            for log in chaos.nodes.logs.glob("*.jsonl"):
                shutil.copy(log, options.logs / f"{log.stem}.log")
    print(json.dumps(found, indent=2))
    if options.report is not None:
        command = (
            f"python benchmarks/soak.py --seconds {options.seconds:g} --seed {options.seed} "
            f"--pace {options.pace} --stretch {options.stretch:g}"
        )
        text = f"# Chaos\n\n`{command}` gave:\n\n```json\n{json.dumps(found, indent=2)}\n```\n"
        options.report.write_text(text)
    return 1 if found["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
