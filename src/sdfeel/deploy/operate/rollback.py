"""Back to an older checkpoint: all edges that are here, to one period that they all have.

Without rounds there is no such period. Checkpoints of two edges do not belong together: of a swap
between them one may have its end and the other not, and what one end has given cannot be taken back
once the other has told that it is on its disk. So there all edges go on from one model, the
weighted mean of their checkpoints, and their links remember nothing: it is the mean that is kept
from then on, and nobody is owed anything. Whoever is not here would go on from something else, so
all must be.
"""

from __future__ import annotations

from pathlib import Path

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import combine
from sdfeel.deploy.operate.export import state_folder
from sdfeel.deploy.topology import Topology
from sdfeel.errors import InputError

__all__ = ["histories", "roll_back"]


def histories(
    deployment: Deployment, edge: str | None = None, state: Path | None = None
) -> dict[str, list[int]]:
    """The periods that each edge with a state folder on this machine can go on from."""
    return {name: store.periods() for name, store in _stores(deployment, edge, state).items()}


def roll_back(
    deployment: Deployment, period: int, edge: str | None = None, state: Path | None = None
) -> dict[str, int]:
    """Puts later checkpoints aside. All edges here go to the same period, or none does.

    Without rounds `period` is one of the edge with the longest time. Every edge takes its last
    checkpoint that is not later and has heard of nothing later, and all go on from their mean.
    """
    stores = _stores(deployment, edge, state)
    try:
        for store in stores.values():
            store.acquire()
        if deployment.most_steps:
            return _roll_back_turns(Topology(deployment), period, stores)
        common = set.intersection(*(set(store.periods()) for store in stores.values()))
        older = [number for number in common if number <= period]
        if not older:
            raise InputError(
                "period",
                period,
                f"no checkpoint as old as that at every edge; there are {sorted(common)}",
            )
        return {name: store.roll_back(max(older)) for name, store in stores.items()}
    finally:
        for store in stores.values():
            store.release()


def _roll_back_turns(topology: Topology, period: int, stores: dict[str, Store]) -> dict[str, int]:
    missing = [name for name in topology.at(period).edges if name not in stores]
    if missing:
        raise InputError(
            "edges",
            ", ".join(stores),
            f"without rounds all edges go back together, to one model: copy the state folders of "
            f"{', '.join(missing)} here too, and name no edge",
        )
    slowest = min(topology.at(period).edges, key=topology.plan)
    goals = {name: topology.counted(period, slowest, name) for name in topology.at(period).edges}
    checkpoints = {name: _last_by(name, goals, stores[name]) for name in topology.at(period).edges}
    shares = [topology.at(period).share(name) for name in checkpoints]
    models = [checkpoint.model for checkpoint in checkpoints.values()]
    mean = combine(models, [share / sum(shares) for share in shares])
    for name, checkpoint in checkpoints.items():
        stores[name].prepare(checkpoint.done, mean)
    for name, checkpoint in checkpoints.items():
        stores[name].begin_from(checkpoint.done)
    return {name: checkpoint.done for name, checkpoint in checkpoints.items()}


def _last_by(name: str, goals: dict[str, int], store: Store) -> EdgeCheckpoint:
    """The last checkpoint of an edge that nothing later than `goals` can have reached."""
    problems: list[str] = []
    for period in reversed(store.periods()):
        checkpoint = store.look(period, None, problems) if period <= goals[name] else None
        heard = checkpoint.pace.get("counts", {}).get("turns", {}) if checkpoint else {}
        if checkpoint and all(turns <= goals.get(edge, turns) for edge, turns in heard.items()):
            return checkpoint
    remedy = f"{name} has no checkpoint as old as its period {goals[name]}: {store.periods()}"
    raise InputError("period", goals[name], "; ".join([remedy, *problems]))


def _stores(deployment: Deployment, edge: str | None, state: Path | None) -> dict[str, Store]:
    names = [deployment.edge(edge).name] if edge else [server.name for server in deployment.edges]
    folders = {n: state_folder(deployment, n, state / n if state else None) for n in names}
    stores = {n: Store(folder, {"edge": n}) for n, folder in folders.items() if folder.is_dir()}
    if not stores:
        raise InputError("state", str(folders[names[0]]), "no state folder is here; see --state")
    return stores
