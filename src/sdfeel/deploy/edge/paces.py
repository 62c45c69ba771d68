"""How an edge's periods go, by the pace of its deployment file."""

from __future__ import annotations

from typing import Any

from sdfeel.algorithm.paces.asynchronous import Asynchronous
from sdfeel.deploy.cluster.cluster import Cluster
from sdfeel.deploy.cluster.drift import Drift
from sdfeel.deploy.cluster.server_step import ServerStep
from sdfeel.deploy.edge.adoption import Adopter
from sdfeel.deploy.edge.periods import Periods
from sdfeel.deploy.edge.rounds import Rounds
from sdfeel.deploy.edge.turns import Turns
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import Vector
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.counts import Counts
from sdfeel.deploy.peers.exchange_timeout import ExchangeTimeout
from sdfeel.deploy.peers.flows import Flows
from sdfeel.deploy.peers.link_states import LinkStates
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.peers.mixer import Mixer
from sdfeel.deploy.waiting import UsualTimes

__all__ = ["make_periods"]


def make_periods(
    node: Node,
    store: Store,
    cluster: Cluster,
    links: Links,
    states: LinkStates,
    model: Vector,
    checkpoint: EdgeCheckpoint | None,
) -> Periods:
    """Make the periods of an edge that goes on from `checkpoint`, or begins with `model`."""
    shared: dict[str, Any] = {
        "node": node,
        "store": store,
        "model": model,
        "done": checkpoint.done if checkpoint else 0,
        "last": node.topology.plan(node.name),
        "cluster": cluster,
        "links": links,
        "states": states,
        "adopter": None if checkpoint else Adopter(node, links, states),
        "saved": links.agreement.checkpoint,
        "server_step": ServerStep.of(node, checkpoint.rows if checkpoint else {}),
    }
    periods = _of_pace(node, links, states, checkpoint, shared)
    periods.averaging.restore(checkpoint.rows if checkpoint else {})
    return periods


def _of_pace(
    node: Node,
    links: Links,
    states: LinkStates,
    checkpoint: EdgeCheckpoint | None,
    shared: dict[str, Any],
) -> Periods:
    pace, seconds = node.deployment.pace, node.deployment.deadlines.exchange
    if not isinstance(pace, Asynchronous):
        timeout = ExchangeTimeout(node.signal, UsualTimes(seconds), node.topology.tau2)
        drift = Drift.of(node, checkpoint)
        return Rounds(mixer=Mixer(node, links, states, timeout), drift=drift, **shared)
    notes = checkpoint.pace if checkpoint else {}
    counts = Counts(node.name, node.topology)
    counts.restore(notes.get("counts", {}))
    flows = Flows(node, pace, links, counts, ExchangeTimeout(node.signal, UsualTimes(seconds)))
    steps = {name: int(number) for name, number in notes.get("steps", {}).items()}
    return Turns(pace=pace, flows=flows, counts=counts, steps=steps, **shared)
