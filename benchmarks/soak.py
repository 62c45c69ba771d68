"""Chaos, seeded: nodes of a deployment are killed, frozen and restarted for minutes.

    python benchmarks/soak.py --seconds 300 --seed 1

4 edges and 12 clients as processes with mutual TLS. At the end there is calm for a while; then all
edges must be within tolerance of each other, no acknowledged period may be lost, and the logs must
show that every exchange kept the weighted mean. Ends with status 1 and says why if not.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "deploy"))

from harness import Process, World, check_mean_kept, deploy

from sdfeel.deploy.model.store import read_safetensors
from sdfeel.deploy.model.vectors import distance
from sdfeel.deploy.topology import Topology
from sdfeel.errors import InputError

TOLERANCE = 0.05
CALM = 60.0


class Chaos:
    """The nodes, and what is done to them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - chaos, not secrets
        self.deployment = deploy(
            folder,
            sizes=(2, 3, 4, 3),
            periods=1_000_000,
            alpha=6,
            averager="chebyshev",
            fallback=True,
            deadlines={"round": 2.0, "exchange": 3.0, "ping": 0.5, "retry": 0.1, "home": 2.0},
            local={"options": {"delay": 0.05}},
        )
        self.world = World(self.deployment)
        self.roles = {edge.name: "edge" for edge in self.deployment.edges}
        self.roles |= {client.name: "client" for client in self.deployment.clients}
        self.nodes = {name: Process(self.world, role, name) for name, role in self.roles.items()}
        self.killed: dict[str, int] = dict.fromkeys(self.roles, 0)
        self.due: list[tuple[float, str, str]] = []

    def run(self, seconds: float) -> None:
        """Something happens every second or so; nobody stays away for good."""
        end, next_blow = time.monotonic() + seconds, time.monotonic() + 3
        while time.monotonic() < end:
            now = time.monotonic()
            for item in [item for item in self.due if item[0] <= now]:
                self.due.remove(item)
                self._bring_back(item[1], item[2])
            if now >= next_blow:
                self._strike(now)
                next_blow = now + self.random.uniform(0.5, 4.0)
            time.sleep(0.02)
        for _, name, how in self.due:
            self._bring_back(name, how)
        self.due.clear()

    def _strike(self, now: float) -> None:
        away = {name for _, name, _ in self.due}
        free = [name for name in self.roles if name not in away]
        if len(away) > len(self.roles) // 3 or not free:
            return
        edges = [name for name in free if self.roles[name] == "edge"]
        name = self.random.choice(edges if edges and self.random.random() < 0.5 else free)
        how = self.random.choice(["kill", "stop"])
        self.nodes[name].signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        self.killed[name] += how == "kill"
        self.due.append((now + self.random.uniform(0.1, 4.0), name, how))

    def _bring_back(self, name: str, how: str) -> None:
        if how == "kill":
            self.nodes[name].process.wait()
            self.nodes[name] = Process(self.world, self.roles[name], name)
        else:
            self.nodes[name].signal(signal.SIGCONT)

    def stop(self) -> None:
        for node in self.nodes.values():
            if node.process.poll() is None:
                node.signal(signal.SIGTERM)
        for node in self.nodes.values():
            node.end()

    def lines(self, role: str) -> list[dict[str, Any]]:
        found = []
        for name, own in self.roles.items():
            if own == role:
                found += self.nodes[name].lines()
        return sorted(found, key=lambda line: line["time"])


def lost_periods(chaos: Chaos) -> list[str]:
    """Periods that were acknowledged and are gone after a restart."""
    lost = []
    for name, role in chaos.roles.items():
        done = 0
        for line in chaos.nodes[name].lines() if role == "edge" else []:
            if line["event"] == "period":
                done = line["period"]
            elif line["event"] == "fresh-start" and done:
                lost.append(f"{name} began anew after period {done}")
            elif line["event"] == "resumed" and line["period"] < done:
                lost.append(f"{name} resumed at {line['period']} after {done}")
    return lost


def disagreement(chaos: Chaos) -> tuple[int, float]:
    """The last period that all edges have on disk, and how far apart they are in it."""
    models = []
    for edge in chaos.deployment.edges:
        folder = chaos.deployment.folder / "state" / edge.name
        found = {int(path.stem[7:]): path for path in folder.glob("period-*.safetensors")}
        models.append(found)
    common = set.intersection(*(set(found) for found in models))
    if not common:
        return 0, float("inf")
    period = max(common)
    try:
        vectors = [read_safetensors(found[period])[0] for found in models]
    except InputError:  # replaced by a newer one meanwhile
        return 0, float("inf")
    return period, max(distance(a, b) for a in vectors for b in vectors)


def settle(chaos: Chaos) -> tuple[int, float]:
    """Calm: until the edges agree, or for a minute."""
    end = time.monotonic() + CALM
    period, apart = disagreement(chaos)
    while apart > TOLERANCE and time.monotonic() < end:
        time.sleep(0.2)
        period, apart = disagreement(chaos)
    return period, apart


def judge(chaos: Chaos, period: int, apart: float) -> dict[str, Any]:
    """What the logs say."""
    topology = Topology(chaos.deployment)
    lines = chaos.lines("edge")
    died = [name for name, count in chaos.killed.items() if count]
    counts = {
        event: sum(line["event"] == event for line in lines)
        for event in ("jump", "taken-back", "repaired", "undecided", "refused", "deadline")
    }
    return {
        "kills": sum(chaos.killed.values()),
        "period": period,
        "exchanges_checked": check_mean_kept(topology, lines, died=died),
        "largest_disagreement": apart,
        "lost": lost_periods(chaos),
        **counts,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sdfeel-soak-") as folder:
        chaos = Chaos(Path(folder), options.seed)
        try:
            chaos.run(options.seconds)
            agreed = settle(chaos)
        finally:
            chaos.stop()
        found = judge(chaos, *agreed)
    print(json.dumps(found, indent=2))
    good = not found["lost"] and found["largest_disagreement"] < TOLERANCE
    print("passed" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
