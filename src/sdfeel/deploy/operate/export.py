"""Models out of a deployment: by name and shape, as `module.load_state_dict` takes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.files import ModelFile, read_model
from sdfeel.deploy.model.state_dict import write_state_dict
from sdfeel.deploy.model.store import Checkpoint, Store
from sdfeel.deploy.model.vectors import Vector, combine
from sdfeel.deploy.topology import Topology
from sdfeel.errors import RunError

__all__ = ["Exported", "export", "last_checkpoint", "state_folder"]


@dataclass(frozen=True)
class Exported:
    """What was written where; `periods` by edge, of the models in it."""

    path: Path
    model: Vector
    periods: dict[str, int]


def state_folder(deployment: Deployment, edge: str, chosen: Path | None = None) -> Path:
    """Where an edge keeps its checkpoints unless told otherwise."""
    return chosen or deployment.path(Path("state") / edge)


def last_checkpoint(
    deployment: Deployment, edge: str, folder: Path, first: ModelFile
) -> Checkpoint | None:
    """Of an edge that may be running: nothing is touched."""
    found, _ = Store.of(deployment, edge, folder, first).load(first.layout.size)
    return found


def export(
    deployment: Deployment,
    out: Path,
    edges: Sequence[str] = (),
    state: Path | None = None,
) -> Exported:
    """The mean of these edges' last models (all of them: u_K), weighted by their data.

    state  the folder with the edges' state folders in it (default: `state` beside the file)
    """
    topology = Topology(deployment)
    first = read_model(deployment.path(deployment.model.initial), constants=True)
    models, weights, periods = [], [], {}
    for name in edges or topology.edges:
        deployment.edge(name)
        folder = state_folder(deployment, name, state / name if state else None)
        found = last_checkpoint(deployment, name, folder, first)
        if found is None:
            raise RunError(f"edge {name} has no checkpoint in {folder}")
        models.append(found.model)
        weights.append(topology.share(name))
        periods[name] = found.done
    mean = combine(models, [weight / sum(weights) for weight in weights])
    notes = {"deployment": deployment.name, "periods": json.dumps(periods)}
    write_state_dict(out, first, mean, notes)
    return Exported(out, mean, periods)
