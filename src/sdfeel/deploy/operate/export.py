"""Models out of a deployment: by name and shape, as `module.load_state_dict` takes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.files import ModelFile, read_model
from sdfeel.deploy.model.state_dict import write_state_dict
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import Vector, combine
from sdfeel.deploy.operate.asking import Answer, ask_for_models
from sdfeel.deploy.topology import Topology
from sdfeel.errors import RunError

__all__ = ["Exported", "export", "last_checkpoint", "state_folder"]

TIMEOUT = 5.0


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
) -> EdgeCheckpoint | None:
    """Of an edge that may be running: nothing is touched."""
    found, _ = Store.of(deployment, edge, folder, first).load(first.layout.size)
    return found


def export(
    deployment: Deployment,
    out: Path,
    edges: Sequence[str] = (),
    state: Path | None = None,
    timeout: float = TIMEOUT,
) -> Exported:
    """The mean of these edges' last models (all of them: u_K), weighted by their data.

    Edges are asked; one that does not answer may have left its state folder here.

    state    the folder with the edges' state folders in it: then nobody is asked
    timeout  seconds to wait for an edge's next word
    """
    topology = Topology(deployment)
    first = read_model(deployment.path(deployment.model.initial), constants=True)
    names = [deployment.edge(name).name for name in edges or topology.edges]
    answers = {} if state else asyncio.run(ask_for_models(topology, first, names, timeout))
    models, weights, periods = [], [], {}
    for name in names:
        found = answers.get(name, Answer())
        if found.model is None:
            found = _from_folder(deployment, name, state, first, found.problem)
        assert found.model is not None  # noqa: S101 - else there was an error
        models.append(found.model)
        weights.append(topology.share(name))
        periods[name] = found.period
    mean = combine(models, [weight / sum(weights) for weight in weights])
    notes = {"deployment": deployment.name, "periods": json.dumps(periods)}
    write_state_dict(out, first, mean, notes)
    return Exported(out, mean, periods)


def _from_folder(
    deployment: Deployment, edge: str, state: Path | None, first: ModelFile, problem: str
) -> Answer:
    folder = state_folder(deployment, edge, state / edge if state else None)
    found = last_checkpoint(deployment, edge, folder, first)
    if found is None:
        asked = f" and does not answer: {problem}" if problem else ""
        raise RunError(f"edge {edge} has no checkpoint in {folder}{asked}")
    return Answer(found.done, found.model)
