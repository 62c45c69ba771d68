"""What a deployment costs beyond computing: `sdfeel bench deploy`.

Three numbers, each from processes on loopback with mutual TLS:

overhead_ms_small   a period of 3 edges and 6 clients that compute nothing, 21,840 values, alpha 2
wire_ratio_large    the same with 6 million values, over the time that one mTLS gRPC stream takes to
                    move the same bytes (every upload, every broadcast, every exchange)
edge_rss_models     peak memory of an edge with 50 clients above that of an edge with a tiny
                    model and as many clients, in models
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from deployment.members import members, write_deployment
from deployment.one_stream import stream_seconds
from processes import memory
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.operate.launch import Launch
from sdfeel.errors import RunError

__all__ = ["run"]

IDLE = Path(__file__).with_name("idle_clients.py")
SMALL, LARGE = 21_840, 6_000_000
ALPHA = 2


def run(quick: bool = False) -> dict[str, float]:
    """All three; `quick` takes fewer periods and, for memory, fewer clients."""
    with tempfile.TemporaryDirectory(prefix="sdfeel-bench-") as place:
        folder = Path(place)
        small = _seconds_per_period(folder / "small", SMALL, 40 if quick else 150)
        # The yardstick is taken before and after: other work on the machine slows both.
        moved = 4 * LARGE * (6 * 2 + 3 * 2 * ALPHA)
        before = stream_seconds(folder / "before", moved)
        large = _seconds_per_period(folder / "large", LARGE, 3 if quick else 6)
        stream = (before + stream_seconds(folder / "after", moved)) / 2
        clients = 12 if quick else 50
        tiny = _peak_rss(folder / "tiny", 16, clients)
        peak = _peak_rss(folder / "peak", LARGE, clients)
    return {
        "overhead_ms_small": 1000 * small,
        "wire_ratio_large": large / stream,
        "edge_rss_models": (peak - tiny) / (4 * LARGE),
    }


def _deployment_of(
    folder: Path, size: int, edges: int, clients: int, periods: int
) -> tuple[Path, Deployment]:
    """A ring of edges with idle clients."""
    table = {
        "name": "bench",
        "schedule": {"iterations": periods, "alpha": ALPHA},
        "deadlines": {"round": 600.0, "exchange": 900.0, "ping": 60.0, "retry": 0.1},
        "local": {"options": {"size": size}},
        **members([clients // edges] * edges),
    }
    values = np.random.default_rng(0).normal(size=size)
    return write_deployment(folder, table, IDLE, values)


def _seconds_per_period(folder: Path, size: int, periods: int) -> float:
    """The median over periods, once everybody has settled, of the time between two of them."""
    file, deployment = _deployment_of(folder, size, edges=3, clients=6, periods=periods)
    with Launch(file, deployment, folder / "logs") as nodes:
        _wait(nodes, 900.0)
        ended = [line["time"] for line in nodes.lines("a") if line["event"] == "period"]
    gaps = np.diff(ended)[len(ended) // 4 :]
    return float(statistics.median(gaps))


def _wait(nodes: Launch, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not nodes.is_over:
        if nodes.failed or time.monotonic() > end:
            raise RunError(f"the benchmark's nodes failed: {nodes.failed or 'out of time'}")
        time.sleep(0.05)


def _peak_rss(folder: Path, size: int, clients: int) -> float:
    """Bytes: the most that an edge with `clients` clients ever held, over two periods."""
    file, _ = _deployment_of(folder, size, edges=1, clients=clients, periods=2)
    edge = [sys.executable, "-m", "sdfeel.deploy.operate.programs", "edge", str(file), "a"]
    clients_command = [sys.executable, "-P", str(IDLE), str(file)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "edge.log").open("wb") as log:
            for command in (edge, clients_command):
                processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        peak = 0.0
        while processes[0].poll() is None:
            peak = max(peak, memory(processes[0].pid, peak=True))
            if processes[1].poll() not in (None, 0):
                raise RunError(f"the benchmark's clients failed; see {folder / 'edge.log'}")
            time.sleep(0.02)
        return peak
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
