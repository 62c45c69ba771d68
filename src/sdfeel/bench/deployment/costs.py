"""What a deployment costs beyond computing: `sdfeel bench deploy`.

Three numbers, each from processes on loopback with mutual TLS:

overhead_ms_small   a period of 3 edges and 6 clients that compute nothing, 21,840 values, alpha 2
wire_ratio_large    the same with 6 million values, over the time that one mTLS gRPC stream takes to
                    move the same bytes (every upload, every broadcast, every exchange)
edge_rss_models     peak memory of an edge with 50 clients above that of an edge with a tiny
                    model and as many clients, in models
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from sdfeel.algorithm.trainer import Model
from sdfeel.bench.deployment.one_stream import stream_seconds
from sdfeel.deploy.config import Deployment, load_deployment
from sdfeel.deploy.model.store import write_safetensors
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.operate.launch import Launch
from sdfeel.deploy.trust.provision import provision
from sdfeel.errors import RunError

__all__ = ["Idle", "idle", "run"]

SMALL, LARGE = 21_840, 6_000_000
ALPHA = 2


class Idle:
    """A trainer that computes nothing: what remains is the deployment itself."""

    def __init__(self, size: int, samples: int) -> None:
        self.size, self.samples = size, samples

    def train(self, model: Model, first: int, steps: int) -> Model:  # noqa: ARG002 - as asked
        return model


def idle(deployment: Deployment, client: str) -> Idle:
    """For `local.trainer`."""
    return Idle(int(deployment.local.options["size"]), deployment.client(client).samples)


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


def _deployment_file(folder: Path, size: int, edges: int, clients: int, periods: int) -> Path:
    """A ring of edges with idle clients, provisioned and with a first model."""
    folder.mkdir(parents=True)
    lines = [
        'name = "bench"',
        "[schedule]",
        f"iterations = {periods}\nalpha = {ALPHA}",
        "[deadlines]\nround = 600.0\nexchange = 900.0\nping = 60.0\nretry = 0.1",
        f'[local]\ntrainer = "sdfeel.bench.deployment.costs:idle"\noptions = {{ size = {size} }}',
    ]
    for number, port in enumerate(_free_ports(edges)):
        lines.append(f'[[edges]]\nname = "edge-{number}"\naddress = "127.0.0.1:{port}"')
    lines += [
        f'[[clients]]\nname = "client-{n}"\nedge = "edge-{n % edges}"\nsamples = 10'
        for n in range(clients)
    ]
    file = folder / "deployment.toml"
    file.write_text("\n".join(lines) + "\n")
    values = np.random.default_rng(0).normal(size=size)
    write_safetensors(folder / "initial.safetensors", as_vector(values), {})
    provision(load_deployment(file))
    return file


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(found.getsockname()[1]) for found in sockets]
    for found in sockets:
        found.close()
    return ports


def _seconds_per_period(folder: Path, size: int, periods: int) -> float:
    """The median over periods, once everybody has settled, of the time between two of them."""
    file = _deployment_file(folder, size, edges=3, clients=6, periods=periods)
    with Launch(file, load_deployment(file), folder / "logs") as nodes:
        _wait(nodes, 900.0)
        ended = [line["time"] for line in nodes.lines("edge-0") if line["event"] == "period"]
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
    file = _deployment_file(folder, size, edges=1, clients=clients, periods=2)
    edge: Any = None
    many: Any = None
    command = [sys.executable, "-m", "sdfeel.deploy.operate.programs"]
    try:
        with (folder / "edge.log").open("wb") as log:
            edge = subprocess.Popen(  # noqa: S603 - our own program
                [*command, "edge", str(file), "edge-0"], stdout=log, stderr=log
            )
            many = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "sdfeel.bench.deployment.all_clients", str(file)],
                stdout=log,
                stderr=log,
            )
        peak = 0.0
        while edge.poll() is None:
            peak = max(peak, _high_water(edge.pid))
            if many.poll() not in (None, 0):
                raise RunError(f"the benchmark's clients failed; see {folder / 'edge.log'}")
            time.sleep(0.02)
        return peak
    finally:
        for process in (edge, many):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def _high_water(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    for line in text.splitlines():
        if line.startswith("VmHWM"):
            return 1024.0 * float(line.split()[1])
    return 0.0
