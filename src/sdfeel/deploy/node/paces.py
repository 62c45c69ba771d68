"""How an edge's periods go, by the pace of its deployment file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sdfeel.algorithm.paces.asynchronous import Asynchronous
from sdfeel.deploy.exchange.counts import Counts
from sdfeel.deploy.exchange.flows import Flows
from sdfeel.deploy.exchange.mixer import Mixer
from sdfeel.deploy.exchange.patience import Patience
from sdfeel.deploy.model.store import EdgeCheckpoint
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.node.adoption import Adopter
from sdfeel.deploy.node.periods import Periods
from sdfeel.deploy.node.rounds import Rounds
from sdfeel.deploy.node.turns import Turns

if TYPE_CHECKING:
    from sdfeel.deploy.node.edge import EdgeServer

__all__ = ["make_periods"]


def make_periods(edge: EdgeServer, model: Vector, found: EdgeCheckpoint | None) -> Periods:
    """Of an edge whose links are there; `found` is the checkpoint that it goes on from."""
    topology, deadlines = edge.topology, edge.deployment.deadlines
    counted = partial(topology.counted, me=edge.name)
    adopter = Adopter(edge.links, edge.states, edge.bell, edge.log, deadlines.exchange, counted)
    shared: dict[str, Any] = {
        "deployment": edge.deployment,
        "topology": topology,
        "store": edge.store,
        "model": model,
        "done": found.done if found else 0,
        "last": topology.plan(edge.name),
        "cluster": edge.cluster,
        "links": edge.links,
        "states": edge.states,
        "bell": edge.bell,
        "log": edge.log,
        "metrics": edge.metrics,
        "adopter": None if found else adopter,
        "saved": edge.links.agreement.checkpoint,
    }
    pace = edge.deployment.pace
    if isinstance(pace, Asynchronous):
        return _turns(edge, pace, found, shared)
    patience = Patience(edge.bell, deadlines.exchange, topology.tau2)
    mixer = Mixer(
        edge.name,
        topology,
        edge.links,
        edge.store.folder,
        patience,
        edge.log,
        edge.metrics,
        edge.states,
    )
    return Rounds(mixer=mixer, **shared)


def _turns(
    edge: EdgeServer, pace: Asynchronous, found: EdgeCheckpoint | None, shared: dict[str, Any]
) -> Turns:
    notes = found.pace if found else {}
    counts = Counts(edge.name, edge.topology)
    counts.restore(notes.get("counts", {}))
    flows = Flows(
        edge.name,
        edge.topology,
        pace,
        edge.links,
        counts,
        Patience(edge.bell, edge.deployment.deadlines.exchange),
        edge.log,
        edge.metrics,
        edge.refused,
    )
    steps = {name: int(own) for name, own in notes.get("steps", {}).items()}
    return Turns(me=edge.name, pace=pace, flows=flows, counts=counts, steps=steps, **shared)
