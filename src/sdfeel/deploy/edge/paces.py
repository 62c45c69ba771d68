"""How an edge's periods go, by the pace of its deployment file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sdfeel.algorithm.paces.asynchronous import Asynchronous
from sdfeel.deploy.edge.adoption import Adopter
from sdfeel.deploy.edge.periods import Periods
from sdfeel.deploy.edge.rounds import Rounds
from sdfeel.deploy.edge.turns import Turns
from sdfeel.deploy.model.store import EdgeCheckpoint
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.peers.counts import Counts
from sdfeel.deploy.peers.exchange_timeout import ExchangeTimeout
from sdfeel.deploy.peers.flows import Flows
from sdfeel.deploy.peers.mixer import Mixer

if TYPE_CHECKING:
    from sdfeel.deploy.edge.edge import EdgeServer

__all__ = ["make_periods"]


def make_periods(edge: EdgeServer, model: Vector, found: EdgeCheckpoint | None) -> Periods:
    """Of an edge whose links are there; `found` is the checkpoint that it goes on from."""
    topology, deadlines = edge.topology, edge.deployment.deadlines
    counted = partial(topology.counted, me=edge.name)
    adopter = Adopter(edge.links, edge.states, edge.signal, edge.log, deadlines.exchange, counted)
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
        "signal": edge.signal,
        "log": edge.log,
        "metrics": edge.metrics,
        "adopter": None if found else adopter,
        "saved": edge.links.agreement.checkpoint,
    }
    pace = edge.deployment.pace
    if isinstance(pace, Asynchronous):
        return _turns(edge, pace, found, shared)
    timeout = ExchangeTimeout(edge.signal, deadlines.exchange, topology.tau2)
    mixer = Mixer(
        edge.name,
        topology,
        edge.links,
        edge.store.folder,
        timeout,
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
        ExchangeTimeout(edge.signal, edge.deployment.deadlines.exchange),
        edge.log,
        edge.metrics,
        edge.refused,
    )
    steps = {name: int(own) for name, own in notes.get("steps", {}).items()}
    return Turns(me=edge.name, pace=pace, flows=flows, counts=counts, steps=steps, **shared)
