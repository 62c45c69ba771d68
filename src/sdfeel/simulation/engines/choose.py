"""Which engine: the one asked for or, with "auto", the one that is quickest on this problem."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from sdfeel.errors import InputError, closest
from sdfeel.network import Network
from sdfeel.simulation.distributed import DistributedEngine
from sdfeel.simulation.engines.engine import Engine, Problem
from sdfeel.simulation.engines.fast.engine import FastEngine
from sdfeel.simulation.engines.fast.errors import Unsupported
from sdfeel.simulation.engines.reference import ReferenceEngine
from sdfeel.simulation.engines.vectorised import VectorisedEngine
from sdfeel.simulation.ranks import Placement, Ranks

__all__ = ["ENGINES", "Choice", "Unsupported", "build_engine"]

# How many clients a measured step takes along, at most.
TRIAL_CLIENTS = 50


@dataclass(frozen=True)
class Choice:
    """The engine, and in one line why it is this one."""

    engine: Engine
    reason: str


ENGINES: dict[str, Callable[[Problem, Tensor], Engine]] = {
    "reference": ReferenceEngine,
    "vectorised": VectorisedEngine,
    "fast": FastEngine,
}


def build_engine(
    name: str, problem: Problem, start: Tensor, ranks: Ranks, placement: Placement
) -> Choice:
    """The engine `name` at the model `start`; "auto" measures a step of each and says which.

    On several ranks it carries out the rank's own clusters, inside a `DistributedEngine`.
    """
    if name != "auto" and name not in ENGINES:
        raise InputError("engine", name, closest(name, [*ENGINES, "auto"]))
    if ranks.size == 1:
        return _fastest(problem, start) if name == "auto" else _named(name, problem, start)
    # All ranks must take the same, so none of them measures: what is fastest almost everywhere.
    clusters = [problem.network.clusters.members[d] for d in placement.servers[ranks.rank]]
    position = {client: i for i, client in enumerate(placement.clients[ranks.rank])}
    part = Network(
        [[position[client] for client in members] for members in clusters],
        "full",
        problem.data.samples,
    )
    inner = _named("fast" if name == "auto" else name, replace(problem, network=part), start)
    engine = DistributedEngine(problem, ranks, placement, inner.engine)
    return Choice(engine, f"{inner.reason}; on each of {ranks.size} ranks")


def _named(name: str, problem: Problem, start: Tensor) -> Choice:
    """The engine asked for or, if it cannot do this, the next one that can: always in words."""
    remarks = []
    if name == "fast":
        try:
            return Choice(FastEngine(problem, start), name)
        except Unsupported as reason:
            remarks.append(f"fast does not support this: {reason}")
    if name != "reference":
        vectorised = VectorisedEngine(problem, start)
        refusal = _refusal(vectorised)
        if refusal is None:
            return Choice(vectorised, "; ".join(["vectorised", *remarks]))
        remarks.append(f"vectorised does not support this: {refusal}")
    return Choice(ReferenceEngine(problem, start), "; ".join(["reference", *remarks]))


def _refusal(engine: Engine) -> str | None:
    """Why torch cannot carry out a step of one client, or None; leaves no trace in the models."""
    present = np.zeros(engine.problem.network.clients, dtype=bool)
    present[0] = True
    before = engine.state(with_clients=False)
    try:
        engine.local_updates(1, 1, present)
    except RuntimeError as reason:
        return str(reason).splitlines()[0]
    engine.restore(before)
    return None


def _fastest(problem: Problem, start: Tensor) -> Choice:
    """Measure one step of each after a warm-up, then build the winner.

    One engine at a time: each holds the models of all clients.
    """
    speeds: dict[str, float] = {}
    remarks: list[str] = []
    present = np.zeros(problem.network.clients, dtype=bool)
    present[:TRIAL_CLIENTS] = True
    for name in reversed(ENGINES):
        if name == "reference" and speeds:
            continue
        try:
            engine = ENGINES[name](problem, start)
            engine.local_updates(1, 1, present)
            begin = time.perf_counter()
            engine.local_updates(1, 1, present)
            speeds[name] = present.sum() / (time.perf_counter() - begin)
            engine.close()
            del engine
        except (Unsupported, RuntimeError) as reason:
            remarks.append(f"{name} does not support this: {str(reason).splitlines()[0]}")
    if not speeds:
        raise InputError("model", type(problem.model).__name__, "; ".join(remarks))
    best = max(speeds, key=lambda name: speeds[name])
    measured = ", ".join(f"{name} {speed:,.0f}" for name, speed in speeds.items())
    engine = ENGINES[best](problem, start)
    return Choice(engine, "; ".join([f"{best} (client steps a second: {measured})", *remarks]))
