"""Other graphs of the same servers: what they would need, and a plan on the best of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sdfeel.clock.cycle_time import short_ring, star_links, tree_links
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.network.graphs import GraphLike
from sdfeel.planner.candidate import Place
from sdfeel.planner.grid import candidates
from sdfeel.planner.race import Objective

if TYPE_CHECKING:
    from sdfeel.planner.plan import Plan
    from sdfeel.simulation.simulation import Simulation

TOPOLOGIES = ("path", "ring", "star", "torus", "partial", "full")
MOST_SERVERS = 200  # among which overlays are looked for: a second or so
# From this factor of the time on another graph is worth a line, and a plan of its own.
WORTH = 0.97


def other_networks(place: Place) -> dict[str, Network]:
    """The same clients and servers on other graphs, by name.

    Where links differ, also the star, the spanning tree and the ring with the fastest messages.
    """
    clusters, samples = place.network.clusters, np.array(place.network.shares.samples)
    graphs: dict[str, GraphLike] = {name: name for name in TOPOLOGIES}
    seconds = _message_seconds(place)
    if seconds is not None:
        tour = short_ring(seconds)
        graphs |= {
            "best star": star_links(seconds),
            "fastest tree": tree_links(seconds),
            "short ring": list(zip(tour, tour[1:] + tour[:1], strict=True)),
        }
    known, networks = [_links(place.network)], {}
    for name, graph in graphs.items():
        try:
            network = Network(clusters, graph, samples)
        except InputError:
            continue  # a torus needs a number of servers that is not prime
        if _links(network) not in known:
            known.append(_links(network))
            networks[name] = network
    return networks


def on_other_graphs(plan: Plan) -> dict[str, float]:
    """Predicted best score on other graphs of the same servers, as a factor of this one's.

    Below 1 is a gain. Only a prediction, with the codecs and the correction of the best in rounds:
    nothing was raced there.
    """
    place, best, objective = plan.place, plan.best, plan.objective
    names = {f"codecs.{way}": (codec,) for way, codec in best.codecs.items()}
    choices = {**plan.choices, **names, "correction": (best.correction,)}
    here = min(objective.predicted(row) for row in plan.grid if row.methods == best.methods)
    if not np.isfinite(here):
        return {}
    factors: dict[str, float] = {}
    for name, network in other_networks(place).items():
        try:
            rows = candidates(place.elsewhere(network), choices)
        except InputError:
            continue  # nothing is stable there
        plan.predict(rows)
        factors[name] = min(objective.predicted(row) for row in rows) / here
    return {name: factor for name, factor in factors.items() if np.isfinite(factor)}


def planned_on_any(simulation: Simulation, plan_on: Callable[[Simulation], Plan]) -> Plan:
    """Plan on the given graph, then on the one that is predicted to need the least; the better one.

    The plan's report says under `graph` which it is, its links, and what was measured on both.
    """
    given = plan_on(simulation)
    factors: dict[str, float] = given.report["other_topologies"]
    name = min(factors, key=factors.__getitem__, default=None)
    plans = {"given": given}
    if name is not None and factors[name] < WORTH:
        network = other_networks(given.place)[name]
        plans[name] = plan_on(replace(simulation, network=network).changed())
    chosen = min(plans, key=lambda each: _score(plans[each]))
    plan = plans[chosen]
    measured = {each: _score(other) for each, other in plans.items()}
    links = sorted(sorted(link) for link in plan.place.network.graph.edges())
    graph = {"name": chosen, "links": links, "measured": measured, "predicted": factors}
    plan.report = {**plan.report, "graph": graph}
    tried = ", ".join(f"{each} {_shown(plan.objective, score)}" for each, score in measured.items())
    plan.reasons = (plan.reasons[0], f"graph: {chosen} (tried: {tried})", *plan.reasons[1:])
    return plan


def _score(plan: Plan) -> float:
    return plan.objective.headline(plan.choice)[0 if plan.objective.target is not None else 1]


def _shown(objective: Objective, score: float) -> str:
    return f"{score:.4g} s" if objective.target is not None else objective.shown(score)


def _links(network: Network) -> set[frozenset[int]]:
    return {frozenset(link) for link in network.graph.edges()}


def _message_seconds(place: Place) -> NDArray[np.float64] | None:
    """Seconds of a model between each two servers, were they neighbours.

    None where all are alike, and where a short ring through so many servers takes too long to find.
    """
    network, profile = place.network, place.profile
    if not 2 < network.servers <= MOST_SERVERS:
        return None
    latencies = profile.latencies(place.parameters, network.clients, network.servers)
    if not latencies.links:
        return None
    seconds = np.zeros((network.servers, network.servers))
    for a in range(network.servers):
        for b in range(a):
            seconds[a, b] = seconds[b, a] = latencies.link(a, b)
    return seconds
