"""Back to an older checkpoint: all edges that are here, to one period that they all have."""

from __future__ import annotations

from pathlib import Path

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.store import Store
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

    Without rounds `period` is one of the edge with the longest time (of `edge`, if it is given),
    and the others go to their last checkpoint that is not later than it.
    """
    stores = _stores(deployment, edge, state)
    try:
        for store in stores.values():
            store.acquire()
        if deployment.most_steps:
            return _roll_back_turns(Topology(deployment), period, edge, stores)
        common = set.intersection(*(set(store.periods()) for store in stores.values()))
        older = [one for one in common if one <= period]
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


def _roll_back_turns(
    topology: Topology, period: int, edge: str | None, stores: dict[str, Store]
) -> dict[str, int]:
    slowest = edge or min(topology.edges, key=topology.plan)
    goals = {name: topology.counted(period, slowest, name) for name in stores}
    for name, store in stores.items():
        found = store.periods()
        if not found or found[0] > goals[name]:
            remedy = f"{name} has no checkpoint as old as its period {goals[name]}: {found}"
            raise InputError("period", period, remedy)
    return {name: store.roll_back(goals[name]) for name, store in stores.items()}


def _stores(deployment: Deployment, edge: str | None, state: Path | None) -> dict[str, Store]:
    names = [deployment.edge(edge).name] if edge else [one.name for one in deployment.edges]
    folders = {n: state_folder(deployment, n, state / n if state else None) for n in names}
    found = {n: Store(folder, {"edge": n}) for n, folder in folders.items() if folder.is_dir()}
    if not found:
        raise InputError("state", str(folders[names[0]]), "no state folder is here; see --state")
    return found
