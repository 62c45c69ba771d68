"""What if, on the network of a plan: with the curve that its pilot predicts.

Everything that the planner needs lies in plan.json, so no training happens here: the curves are
those of `sdfeel.planner.saved.predicted`, and the clock is the plan's own. Where a pace without
rounds was chosen, it is about the best in rounds: a query is about rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sdfeel.algorithm.methods.codecs import WAYS
from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import LatencyProfile, load_profile
from sdfeel.errors import InputError
from sdfeel.page.what_if import NUMBERS, answered, changed, choices, number
from sdfeel.page.work import Budget, most_links
from sdfeel.planner.plan import Plan
from sdfeel.planner.price import LossCurve
from sdfeel.planner.saved import candidate_of, place_of
from sdfeel.simulation.settings import Settings

__all__ = ["AS_PLANNED", "what_if_planned"]

AS_PLANNED = "as planned"
FAR = 2.5  # times the planned seconds that a picture shows at least
FARTHEST = 20.0
MOST_POINTS = 500


def what_if_planned(query: Mapping[str, str], plan: Plan) -> dict[str, Any]:
    """As `what_if` answers, and the curves; what a query does not say is as it was planned."""
    names, best = plan.best.names, plan.best
    numbers = {
        name: number(name, query, names[name], *NUMBERS[name][1:])
        for name in ("tau1", "tau2", "alpha")
    }
    planned = {way: names[f"codecs.{way}"] for way in WAYS}
    planned |= {"averager": names["averager"], "graph": AS_PLANNED, "profile": AS_PLANNED}
    words = {name: query.get(name) or value for name, value in planned.items()}
    profile = _profile(plan, words["profile"])
    clock, _ = changed(profile, query, plan.place.network.clients)
    graph = None if words["graph"] == AS_PLANNED else words["graph"]
    codecs = {way: codec for way, codec in best.codecs.items() if words[way] == planned[way]}
    settings = {
        "schedule": Schedule(numbers["tau1"], numbers["tau2"], numbers["alpha"]),
        "averager": words["averager"],
        "codecs": {way: codecs.get(way, words[way]) for way in WAYS},
    }
    network = plan.place.network
    links = network.graph.number_of_edges()
    links = links if graph is None else most_links(graph, network.servers)
    checked = Settings.of(settings)
    changes = {name: getattr(checked, name) for name in settings}
    asked = plan.place.settings.model_copy(update=changes)
    Budget("what-if").spend(network.servers, network.clients, links, asked)
    row = candidate_of(plan, settings, graph=graph, profile=clock)
    place = place_of(plan, graph=graph, profile=clock)
    algorithm, network = place.algorithm(**row.settings), place.network
    sizes = {len(members) for members in network.clusters.members}
    shown = {
        "servers": network.servers,
        "clients": sizes.pop() if len(sizes) == 1 else None,
        "parameters": place.parameters,
        "scheme": algorithm.scheme.name,
    }
    return {
        **answered(algorithm, network, row.averager, profile),
        "settings": {**numbers, **words, **shown},
        "commands": [],
        "profile": None,
        "plan": _curves(plan, plan.expected(row)),
    }


def _profile(plan: Plan, name: str) -> LatencyProfile:
    """Another profile has other rates; a local update takes what the plan's model takes."""
    if name == AS_PLANNED:
        return plan.place.profile
    known = choices()["words"]["profile"]
    if name not in known:
        raise InputError("profile", name, f"one of {', '.join([AS_PLANNED, *known])}")
    return replace(load_profile(name), flops_per_step=plan.place.profile.flops_per_step)


def _curves(plan: Plan, curve: LossCurve) -> dict[str, Any]:
    """What the query has, what was planned, and the pilot as it was measured."""
    goal, is_accuracy = plan.objective.target, plan.objective.accuracy
    as_planned = plan.expected(plan.best)
    seconds = plan.objective.limit if goal is None else plan.objective.measured(plan.best)
    reached = None if goal is None else _finite(curve.seconds_to(goal))
    far = min(max(FAR * seconds, 1.2 * (reached or 0.0)), FARTHEST * seconds)
    drawn = {
        "this schedule": curve,
        "as planned": as_planned,
        "the pilot, measured": plan.predictor.path.curve,
    }
    return {
        "measure": "accuracy" if is_accuracy else "loss",
        "curves": {name: _shown(each, far, is_accuracy) for name, each in drawn.items()},
        "target": goal,
        "seconds": seconds,
        "reached": reached,
        "reasons": list(plan.reasons),
    }


def _finite(seconds: float) -> float | None:
    return seconds if np.isfinite(seconds) else None


def _shown(curve: LossCurve, far: float, is_accuracy: bool) -> dict[str, list[float]]:
    """Up to there, and no more points than can be seen."""
    near = curve.seconds <= far
    seconds, losses = curve.seconds[near], curve.losses[near]
    places = np.unique(np.linspace(0, max(len(seconds) - 1, 0), MOST_POINTS).astype(int))
    places = places[: len(seconds)]
    values = 1 - losses if is_accuracy else losses
    return {"x": seconds[places].tolist(), "y": values[places].tolist()}
