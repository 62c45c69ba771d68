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
    """What was written where, and what it is the mean of.

    Attributes:
        path: The file.
        model: The weighted mean.
        periods: By edge, of the models in it.
        weights: By edge, in the mean; they sum to 1.
        origins: By edge: "edge" if it answered, "checkpoint" if its state folder was read.
        missing: By edge that is not in it, why.
    """

    path: Path
    model: Vector
    periods: dict[str, int]
    weights: dict[str, float]
    origins: dict[str, str]
    missing: dict[str, str]


def state_folder(deployment: Deployment, edge: str, chosen: Path | None = None) -> Path:
    """Where an edge keeps its checkpoints unless told otherwise."""
    return chosen or deployment.path(Path("state") / edge)


def last_checkpoint(
    deployment: Deployment, edge: str, folder: Path, first: ModelFile
) -> EdgeCheckpoint | None:
    """Of an edge that may be running: nothing is touched."""
    checkpoint, _ = Store.of(deployment, edge, folder, first).load(first.layout.size)
    return checkpoint


def export(
    deployment: Deployment,
    out: Path,
    edges: Sequence[str] = (),
    state: Path | None = None,
    timeout: float = TIMEOUT,
) -> Exported:
    """Write the mean of the edges' last models (of all: u_K), weighted by their data.

    Edges are asked; one that does not answer may have left its state folder here. What is found
    nowhere is left out of the mean of all, and named.

    Args:
        deployment: Whose edges.
        out: The file to write.
        edges: Only these; each of them must be found.
        state: The folder with the edges' state folders in it; then no edge is asked.
        timeout: Seconds to wait for an edge's next word.

    Returns:
        What was written, and what it is the mean of.

    Raises:
        RunError: No model was found, or not that of an edge that was named.
    """
    topology = Topology(deployment)
    first = read_model(deployment.path(deployment.model.initial), constants=True)
    names = [deployment.edge(name).name for name in edges or topology.at(0).edges]
    answers = {} if state else asyncio.run(ask_for_models(topology, first, names, timeout))
    models: dict[str, Vector] = {}
    periods: dict[str, int] = {}
    origins: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name in names:
        answer, origins[name] = answers.get(name, Answer()), "edge"
        if answer.model is None:
            answer, origins[name] = _read(deployment, name, state, first, answer), "checkpoint"
        if answer.model is None:
            missing[name] = answer.problem
            del origins[name]
        else:
            models[name], periods[name] = answer.model, answer.period
    if missing and (edges or not models):
        raise RunError("\n".join(f"edge {name} {problem}" for name, problem in missing.items()))
    shares = {name: topology.at(periods[name]).share(name) for name in models}
    weights = {name: share / sum(shares.values()) for name, share in shares.items()}
    mean = combine(list(models.values()), list(weights.values()))
    notes = {"deployment": deployment.name, "periods": json.dumps(periods)}
    notes |= {"weights": json.dumps(weights), "missing": json.dumps(sorted(missing))}
    write_state_dict(out, first, mean, notes)
    return Exported(out, mean, periods, weights, origins, missing)


def _read(
    deployment: Deployment, edge: str, state: Path | None, first: ModelFile, answer: Answer
) -> Answer:
    """The last checkpoint of an edge that did not answer; a problem names both."""
    folder = state_folder(deployment, edge, state / edge if state else None)
    checkpoint = last_checkpoint(deployment, edge, folder, first)
    if checkpoint is None:
        silence = f" and does not answer: {answer.problem}" if answer.problem else ""
        return Answer(problem=f"has no checkpoint in {folder}{silence}")
    return Answer(checkpoint.done, checkpoint.model)
