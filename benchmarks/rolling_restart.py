"""How many periods a deployment keeps while all its nodes are restarted, one after the other.

    python benchmarks/rolling_restart.py --edges 3 --clients 8

As an upgrade does it: a node is told to stop (SIGTERM), is started again once it has ended, and the
next one follows `--pause` seconds after an edge has made a period again or a client was started. An
edge that restarts loses its own periods, so the share depends on the pause. Nodes, network and
models are those of `benchmarks/chaos.py`, and so is the calm stretch that comes first.

Prints one JSON object: `periods_kept` and `uploads_kept` (edges' periods and accepted uploads a
second in the rolling restart, over those in the calm), the numbers of both stretches, `violations`
(as `chaos.py` has them) and the machine's load. Its exit status is 1 if there are violations.
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
from pathlib import Path
from typing import Any

import numpy as np

from chaos import (
    DEADLINES,
    DELAY,
    PERIODS,
    SETTLED,
    STARTED,
    STOPPED,
    VALUES,
    Chaos,
    judge,
    period_lines,
    ratio,
    rounded,
    summary,
    wait_for_periods,
)
from deployment import toy
from deployment.members import members, write_deployment
from deployment.nodes import Nodes
from sdfeel.errors import RunError

BACK = 120.0  # seconds within which an edge must make a period again


def restart(nodes: Nodes, chaos: Chaos, name: str) -> None:
    """Stop a node, start it again, and wait until it does its part."""
    nodes.signal(name, signal.SIGTERM)
    end = time.monotonic() + STOPPED
    while nodes.status(name) is None and time.monotonic() < end:
        time.sleep(0.02)
    if nodes.status(name) is None:
        chaos.violations.append(f"{name} did not end within {STOPPED:g} s of SIGTERM")
        nodes.signal(name, signal.SIGKILL)
        nodes.processes[name].wait()
    chaos.ended.add(name)
    since = time.time()
    nodes.start(name)
    if name not in nodes.edges:
        return
    end = time.monotonic() + BACK
    while not any(x["time"] > since for x in period_lines(nodes.lines(name))):
        if time.monotonic() > end:
            chaos.violations.append(f"{name} made no period within {BACK:g} s of its restart")
            return
        time.sleep(0.2)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Carry it all out, and return the object that is printed."""
    sizes = [len(part) for part in np.array_split(np.arange(options.clients), options.edges)]
    table = {
        "name": "rolling",
        "audit": True,
        "schedule": {"iterations": PERIODS},
        "graph": {"kind": "ring" if options.edges > 2 else "path"},
        "deadlines": DEADLINES,
        "local": {"options": {"delay": DELAY, "size": VALUES}},
        **members(sizes, fallback=True),
    }
    file, deployment = write_deployment(folder, table, Path(toy.__file__), np.zeros(VALUES))
    with Nodes(file, deployment) as nodes:
        chaos = Chaos(nodes, random.Random(0), PERIODS)  # noqa: S311 - chance, not secrets
        if slow := wait_for_periods(nodes, chaos, STARTED, SETTLED, everybody=True):
            raise RunError(f"{', '.join(slow)} did not start within {STARTED:g} s")
        load = os.getloadavg()[0]
        calm_begins = time.time()
        time.sleep(options.calm)
        begins = time.time()
        for name in nodes.roles:
            print(f"restart {name}", file=sys.stderr)
            restart(nodes, chaos, name)
            time.sleep(options.pause)
        ends = time.time()
    violations = chaos.violations + judge(nodes, chaos, ends)
    periods = period_lines(nodes.lines_of_edges())
    before, after = summary(periods, calm_begins, begins), summary(periods, begins, ends)
    return {
        "periods_kept": ratio(after, before, "periods_per_second"),
        "uploads_kept": ratio(after, before, "uploads_per_second"),
        "violations": violations,
        "calm": rounded(before),
        "restarts": rounded(after),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=int, default=3)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two restarts")
    parser.add_argument("--calm", type=float, default=60.0, help="seconds before the restarts")
    options = parser.parse_args()
    if not 2 <= options.edges <= min(26, options.clients):
        parser.error("--edges: two or more, and no more than 26 or than there are clients")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="sdfeel-rolling-") as folder:
        found = measure(Path(folder), options)
    print(json.dumps(found, indent=2))
    return 1 if found["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
