"""How an edge's periods go, by the pace of its deployment file."""

from __future__ import annotations

from typing import TypedDict

from sdfeel.algorithm.methods.averaging import Rule
from sdfeel.algorithm.methods.exchanges import Clipped
from sdfeel.algorithm.paces.asynchronous import Asynchronous
from sdfeel.deploy.cluster.averaging import ClusterMean
from sdfeel.deploy.cluster.cluster import Cluster
from sdfeel.deploy.cluster.drift import Drift
from sdfeel.deploy.cluster.server_step import ServerStep, trained_values
from sdfeel.deploy.edge.adoption import Adopter
from sdfeel.deploy.edge.carrier import Carrier
from sdfeel.deploy.edge.rounds import Rounds
from sdfeel.deploy.edge.saver import LAG, Saver
from sdfeel.deploy.edge.turns import Turns
from sdfeel.deploy.model.rows import rows_of
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import Change, Vector
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.agreement import Base
from sdfeel.deploy.peers.counts import Counts
from sdfeel.deploy.peers.exchange_timeout import ExchangeTimeout
from sdfeel.deploy.peers.flows import Flows
from sdfeel.deploy.peers.hearing import Hearing
from sdfeel.deploy.peers.link_states import LinkStates
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.peers.mixer import Mixer
from sdfeel.deploy.waiting import UsualTimes
from sdfeel.deploy.wire.packing import packing_of

__all__ = ["make_carrier"]


class _Shared(TypedDict):
    """What a carrier has at any pace."""

    node: Node
    model: Vector
    last: int
    cluster: Cluster
    links: Links
    states: LinkStates
    saver: Saver
    averaging: ClusterMean
    hearing: Hearing
    server_step: ServerStep
    drift: Drift | None
    adopter: Adopter | None


def make_carrier(
    node: Node,
    store: Store,
    cluster: Cluster,
    links: Links,
    states: LinkStates,
    model: Vector,
    checkpoint: EdgeCheckpoint | None,
) -> Carrier:
    """Make the carrier of an edge that goes on from `checkpoint`, or begins with `model`."""
    rows = checkpoint.rows if checkpoint else {}
    if checkpoint is None and not node.deployment.codecs.between.exact:
        first = Change.of(model)  # which all edges hold
        links.agreement.bases |= dict.fromkeys(links, Base(first, first))
    table, done = node.deployment.averaging, checkpoint.done if checkpoint else 0
    averager, averaging_rule = node.topology.at(done).averager, table.as_rule
    asks = isinstance(averager.rule, Clipped) or type(averaging_rule) is not Rule
    trained = _trained(node) if asks else node.size
    of_mean = rows_of(averaging_rule, rows, trained, node.folder)
    about = (averaging_rule, table.bound, node.folder, node.tell, of_mean)
    averaging = ClusterMean(node.topology, node.name, *about)
    drift = Drift.of(node, checkpoint)
    # A client that remembers what arrived must know it before its next message, or its next work.
    packing = packing_of(node.deployment.codecs.up)
    is_strict = drift is not None or (packing is not None and packing.remembers)
    rule = averager.rule
    remembered = rows_of(rule, rows, trained, node.folder) if rule is not None else {}
    hearing = Hearing(rule, trained, node.folder, node.tell, remembered)
    number = links.agreement.checkpoint
    saver = Saver(node, store, model, done, number, lag=0 if is_strict else LAG)
    shared: _Shared = {
        "node": node,
        "model": model,
        "last": node.topology.plan(node.name),
        "cluster": cluster,
        "links": links,
        "states": states,
        "saver": saver,
        "averaging": averaging,
        "hearing": hearing,
        "server_step": ServerStep.of(node, rows),
        "drift": drift,
        "adopter": None if checkpoint else Adopter(node, links, states),
    }
    pace, seconds = node.deployment.pace, node.deployment.deadlines.exchange
    if not isinstance(pace, Asynchronous):
        timeout = ExchangeTimeout(node.signal, UsualTimes(seconds), node.topology.tau2)
        return Rounds(mixer=Mixer(node, links, states, timeout, hearing), **shared)
    notes = checkpoint.pace if checkpoint else {}
    counts = Counts(node.name, node.topology)
    counts.restore(notes.get("counts", {}))
    timeout = ExchangeTimeout(node.signal, UsualTimes(seconds))
    flows = Flows(node, pace, links, counts, timeout, hearing)
    steps = {name: int(number) for name, number in notes.get("steps", {}).items()}
    made = float(notes.get("made", 0.0))
    return Turns(pace=pace, flows=flows, counts=counts, steps=steps, made=made, **shared)


def _trained(node: Node) -> int:
    return trained_values(node.deployment.path(node.deployment.model.initial), node.size)
