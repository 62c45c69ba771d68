"""Time and memory of the fast engine as clients and servers become many."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sdfeel.network import AVERAGERS, Network
from speed import measuring
from speed.extent import Extent
from speed.jobs import Job, make_model
from speed.measuring import Measured, Spread, cores, ratio, spread

__all__ = ["clients", "memory", "profile", "servers", "topology_seconds"]

# Few samples a client where clients are many, so that memory is that of the models.
FEW = 12


def _fast(extent: Extent, jobs: Mapping[str, Job]) -> dict[str, Measured]:
    teams = {name: [job.as_dict()] for name, job in jobs.items()}
    return measuring.measure(teams, extent.repetitions, extent.seconds)


def clients(extent: Extent) -> tuple[dict[str, Any], Spread | None]:
    """Time of a client step of the fast engine; the same data at every client."""
    base = Job("fast", threads=cores(), samples=FEW)
    jobs = {str(n): replace(base, clients=n, servers=max(2, n // 100)) for n in extent.growth}
    found = _fast(extent, jobs)
    rows = {
        clients: _unless_unsupported(own, lambda own: {
            "microseconds_per_step": spread([1e6 / rate for rate in own.rates]).as_dict(),
            "peak_gb": own.peak_gb,
        })
        for clients, own in found.items()
    }  # fmt: skip
    least, most = str(extent.clients), str(extent.growth[-1])
    return rows, ratio(found[least], found[most]) if least in found else None


def servers(extent: Extent) -> dict[str, Any]:
    """What aggregation (intra, exchange, broadcast) adds to tau1 local updates."""
    base = Job("fast", threads=cores(), samples=FEW, clients=extent.server_clients, aggregate=True)
    found = _fast(extent, {str(n): replace(base, servers=n) for n in extent.servers})

    def row(own: Measured) -> dict[str, Any]:
        rounds = [n / (base.tau1 * base.clients) for n in own.units]
        rest = [part["aggregation"] for part in own.parts]
        parts = list(zip(own.seconds, rest, rounds, strict=True))
        return {
            "local_ms_per_round": spread([1e3 * work / n for work, _, n in parts]).as_dict(),
            "aggregation_ms_per_round": spread([1e3 * rest / n for _, rest, n in parts]).as_dict(),
            "local_share": spread([work / (work + rest) for work, rest, _ in parts]).as_dict(),
        }

    return {servers: _unless_unsupported(own, row) for servers, own in found.items()}


def _unless_unsupported(own: Measured, row: Callable[[Measured], dict[str, Any]]) -> dict[str, Any]:
    return {"unsupported": own.unsupported} if own.unsupported else row(own)


def memory(clients: int, servers: int) -> tuple[dict[str, Any], Spread]:
    """20 iterations through `sdfeel.train`, with images as bytes and as float32."""
    rows = {"bytes": _peak(clients, servers, True), "float32": _peak(clients, servers, False)}
    return rows, spread([rows["bytes"]["peak_gb"]])


def _peak(clients: int, servers: int, pixels: bool) -> dict[str, Any]:
    """One such run, in a process of its own."""
    job = Job(
        "train", threads=cores(), clients=clients, servers=servers, samples=FEW, pixels=pixels
    )
    found = measuring.measure({"train": [job.as_dict()]}, 1, 0, segments=20 // job.tau1)["train"]
    parameters = sum(parameter.numel() for parameter in make_model(job).parameters())
    return {
        "clients": clients,
        "servers": servers,
        "peak_gb": found.peak_gb,
        "parameters_gb": 4 * clients * parameters / 1e9,
        "data_gb": (1 if pixels else 4) * clients * FEW * 28 * 28 / 1e9,
        "steps_per_second": found.rates[0],
    }


def profile(steps: int) -> dict[str, Any]:
    """What a run with 1,000 clients spends its time on, with an evaluation every 50 iterations."""
    job = Job("train", threads=cores(), clients=1000, servers=100)
    own = measuring.measure({"train": [job.as_dict()]}, 1, 0, segments=steps // job.tau1)["train"]
    parts = {name: seconds for name, seconds in own.parts[0].items() if name != "work"}
    shares = {name: seconds / own.seconds[0] for name, seconds in parts.items()}
    about = {"clients": job.clients, "servers": job.servers, "steps": steps}
    return {**about, "steps_per_second": own.rates[0], "shares": shares}


def topology_seconds(servers: int) -> dict[str, float]:
    """Seconds for the graph, P and zeta, and each averager with its operator."""
    begin = time.perf_counter()
    network = Network.build("ring", servers)
    parts = {"graph": time.perf_counter() - begin}
    begin = time.perf_counter()
    assert network.mixing.zeta < 1
    parts["mixing matrix"] = time.perf_counter() - begin
    for name in AVERAGERS:
        begin = time.perf_counter()
        averager = network.averager(name, 5)
        assert averager.operator.shape == (servers, servers)
        parts[name] = time.perf_counter() - begin
    return parts
